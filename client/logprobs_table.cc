#include "client/logprobs_table.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {
namespace {

// A token may be a part of a character, which no terminal can show.
bool IsWholeCharacters(std::string_view bytes) {
  size_t continuation = 0;  // Bytes that the current character still needs.
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    const bool continues = (byte & 0xc0) == 0x80;
    if (continues != (continuation > 0)) return false;
    if (continues) {
      --continuation;
    } else if (byte >= 0x80) {
      continuation = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
    }
  }
  return continuation == 0;
}

// Ids where only ids were asked for.
std::string Name(const std::string& bytes, uint32_t id) {
  if (bytes.empty()) return absl::StrCat("id ", id);
  const std::string escaped =
      IsWholeCharacters(bytes) ? absl::Utf8SafeCEscape(bytes) : absl::CEscape(bytes);
  return absl::StrCat("\"", escaped, "\"");
}

std::string Line(int64_t position, double logprob, uint32_t rank, const std::string& name,
                 const google::protobuf::RepeatedPtrField<v1::TokenLogprob>& top) {
  std::string line = absl::StrFormat("%6d  %8.4f  rank %d  %s", position, logprob, rank, name);
  const char* separator = "  | ";
  for (const v1::TokenLogprob& one : top) {
    absl::StrAppendFormat(&line, "%s%s %.4f", separator, Name(one.bytes(), one.id()),
                          static_cast<double>(one.logprob()));
    separator = ", ";
  }
  return line + "\n";
}

}  // namespace

std::string FormatLogprobs(const v1::Token& token) {
  return Line(token.position(), token.logprob(), token.rank(), Name(token.bytes(), token.id()),
              token.top());
}

std::string FormatLogprobs(const v1::PromptLogprob& token, int position) {
  const std::string name = absl::StrCat("id ", token.id());
  if (!token.has_logprob()) return absl::StrFormat("%6d  %8s  %s\n", position, "", name);
  return Line(position, token.logprob(), token.rank(), name, token.top());
}

}  // namespace vitrine::client
