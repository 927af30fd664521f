#include "model/byte_token.h"

namespace vitrine {

std::string ByteTokenText(uint8_t byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 0xF], '>'};
}

std::optional<uint8_t> ParseByteToken(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
  int value = 0;
  for (const char digit : text.substr(3, 2)) {
    const bool is_decimal = digit >= '0' && digit <= '9';
    const bool is_letter = digit >= 'A' && digit <= 'F';
    if (!is_decimal && !is_letter) return std::nullopt;
    value = value * 16 + (is_decimal ? digit - '0' : digit - 'A' + 10);
  }
  return static_cast<uint8_t>(value);
}

}  // namespace vitrine
