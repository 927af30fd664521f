// vitrine attention as its users meet it: both built programs, the real model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tests/client/subprocess.h"
#include "tests/e2e/server_process.h"

namespace vitrine {
namespace {

using client::Lines;
using client::Outcome;
using client::ReadFile;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class AttentionCommandTest : public ::testing::Test {
 protected:
  void Start(const std::vector<std::string>& flags) {
    std::vector<std::string> all = {"--model=" + TestModelPath(), "--context_length=512"};
    all.insert(all.end(), flags.begin(), flags.end());
    ExitReport report;
    server_ = ServerProcess::Start(all, &report);
    ASSERT_NE(server_, nullptr) << report.standard_error;
  }

  Outcome Attention(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {VITRINE_CLIENT, "attention", "--server=" + server_->address()});
    return client::RunToEnd(arguments);
  }

  std::unique_ptr<ServerProcess> server_;
};

// Between "request " and ":" of the last line.
std::string RequestId(const std::string& picture) {
  const std::string last = Lines(picture).back();
  const size_t begin = std::string("request ").size();
  return last.substr(begin, last.find(':') - begin);
}

TEST_F(AttentionCommandTest, PictureFilesAndReplayAgree) {
  Start({"--allow_inspection", "--numerics=exact"});
  const std::string live = ::testing::TempDir() + "/live.csv";
  const std::string replayed = ::testing::TempDir() + "/replayed.csv";
  const std::string prompt = "The capital of France is";
  const Outcome picture = Attention({prompt, "--temperature=0", "--max_tokens=2", "--csv=" + live});
  ASSERT_EQ(picture.exit_code, 0) << picture.err;
  EXPECT_THAT(picture.out, StartsWith("attention, mean over 30 layers and 9 heads: "));
  EXPECT_THAT(Lines(picture.out), Contains(StartsWith("4 _is -> _Paris ")));
  EXPECT_THAT(picture.out, HasSubstr("numerics exact"));

  const Outcome replay =
      Attention({"--request=" + RequestId(picture.out), "--csv=" + replayed, "--queries=all"});
  ASSERT_EQ(replay.exit_code, 0) << replay.err;
  EXPECT_THAT(replay.out, HasSubstr("replayed, "));
  const std::vector<std::string> a = Lines(ReadFile(live));
  const std::vector<std::string> b = Lines(ReadFile(replayed));
  // 6 rows of 1 to 6 keys in 270 heads; the last token has looked at nothing yet. None of these
  // tokens holds a line end, which a field of a CSV file may.
  EXPECT_EQ(a.size(), 1u + 270 * 21);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 1; i < a.size(); ++i) {
    const size_t comma = a[i].rfind(',');
    ASSERT_EQ(a[i].substr(0, comma), b[i].substr(0, b[i].rfind(',')));
    const double difference =
        std::stod(a[i].substr(comma + 1)) - std::stod(b[i].substr(b[i].rfind(',') + 1));
    // What the protocol promises of a replay in exact numerics.
    ASSERT_LE(std::fabs(difference), 1e-6) << a[i];
  }

  const Outcome grid = Attention({prompt, "--view=grid", "--statistic=first", "--max_tokens=1"});
  EXPECT_EQ(grid.exit_code, 0) << grid.err;
  EXPECT_THAT(Lines(grid.out), Contains(StartsWith("29 ")));
  const Outcome spans = Attention({prompt, "--spans=country=text:France", "--max_tokens=1"});
  EXPECT_EQ(spans.exit_code, 0) << spans.err;
  EXPECT_THAT(spans.out, HasSubstr("country"));
}

TEST_F(AttentionCommandTest, WithoutInspectionTheRefusalSaysHow) {
  Start({});
  const Outcome refused = Attention({"The capital of France is"});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("FAILED_PRECONDITION"));
  EXPECT_THAT(refused.err, HasSubstr("--allow_inspection"));
  EXPECT_EQ(refused.out, "");
}

}  // namespace
}  // namespace vitrine
