#include "model/quote.h"

#include <cstddef>

namespace vitrine {
namespace {

constexpr size_t kMaxQuotedBytes = 48;
constexpr std::string_view kHexDigits = "0123456789abcdef";

}  // namespace

std::string Quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text.substr(0, kMaxQuotedBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte >= 0x20 && byte < 0x7f) {
      quoted += c;
    } else {
      quoted += "\\x";
      quoted += kHexDigits[byte >> 4];
      quoted += kHexDigits[byte & 0xf];
    }
  }
  quoted += text.size() > kMaxQuotedBytes ? "...\"" : "\"";
  return quoted;
}

}  // namespace vitrine
