#include "server/caller_table.h"

#include <gtest/gtest.h>

#include <string>

namespace vitrine::server {
namespace {

constexpr SipHashKey kHashKey = {5, 6};
constexpr char kAlice[] = "alices-token-0123456789";
constexpr char kOps[] = "the-token-of-operations!";

absl::StatusOr<CallerTable> Parse(const std::string& text) {
  return CallerTable::Parse(text, kHashKey);
}

std::string Lines() {
  return std::string("# callers\n\n") + "alice data " + kAlice + "\r\n\tops\tdata,control  " +
         kOps + "\n";
}

TEST(CallerTable, NamesTheCallerAndKnowsItsScopes) {
  const auto table = Parse(Lines());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->Admit(std::string("Bearer ") + kAlice, Scope::kData).value(), "alice");
  EXPECT_EQ(table->Admit(std::string("Bearer ") + kOps, Scope::kControl).value(), "ops");
  EXPECT_EQ(table->Admit(std::string("Bearer ") + kAlice, Scope::kControl).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(table->Admit(std::string("Bearer ") + kOps, Scope::kInspection).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST(CallerTable, EveryOtherTokenIsUnauthenticated) {
  const auto table = Parse(Lines());
  std::string longer = std::string("Bearer ") + kAlice + "x";
  std::string nul = std::string("Bearer ") + kAlice + '\0';
  for (const std::string& shown :
       {std::string(), std::string("Bearer "), std::string("Bearer"), std::string(kAlice),
        std::string("bearer ") + kAlice, std::string("Basic ") + kAlice,
        std::string("Bearer  ") + kAlice, longer, longer.substr(0, longer.size() - 2), nul}) {
    const auto caller = table->Admit(shown, Scope::kData);
    EXPECT_EQ(caller.status().code(), absl::StatusCode::kUnauthenticated) << shown;
    EXPECT_EQ(caller.status().message().find("alices"), absl::string_view::npos);
  }
}

TEST(CallerTable, ErrorsNameTheLineAndNeverTheToken) {
  const struct {
    std::string text;
    std::string words;
  } cases[] = {
      {"", "names no caller"},
      {"# nobody\n", "names no caller"},
      {"a data\n", "line 1: must be NAME SCOPES TOKEN"},
      {"\na data 0123456789abcdef x\n", "line 2: must be NAME SCOPES TOKEN"},
      {"a/b data 0123456789abcdef\n", "line 1: the name"},
      {std::string(65, 'a') + " data 0123456789abcdef\n", "line 1: the name"},
      {"a root 0123456789abcdef\n", "line 1: scopes"},
      {"a data, 0123456789abcdef\n", "line 1: scopes"},
      {"a data 0123456789abcde\n", "line 1: the token must"},
      {"a data 0123456789abcde\xC3\xA9\n", "line 1: the token must"},
      {"a data " + std::string(513, 't') + "\n", "line 1: the token must"},
      {"a data 0123456789abcdef\nb data 0123456789abcdef\n", "line 2: the token is used twice"},
  };
  for (const auto& c : cases) {
    const auto table = Parse(c.text);
    EXPECT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string message(table.status().message());
    EXPECT_NE(message.find(c.words), std::string::npos) << message;
    EXPECT_EQ(message.find("0123456789"), std::string::npos) << message;
  }
  EXPECT_EQ(CallerTable::Load("/nonexistent/tokens", kHashKey).status().message(),
            "--auth_tokens_file is not a readable file");
  EXPECT_FALSE(CallerTable::Load(testing::TempDir(), kHashKey).ok());
}

TEST(CallerTable, ACallerMayHaveSeveralTokens) {
  const auto table = Parse("a data 0123456789abcdef\na control fedcba9876543210\n");
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table->Admit("Bearer fedcba9876543210", Scope::kControl).value(), "a");
  EXPECT_FALSE(table->Admit("Bearer fedcba9876543210", Scope::kData).ok());
}

}  // namespace
}  // namespace vitrine::server
