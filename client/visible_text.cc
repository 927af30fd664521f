#include "client/visible_text.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_format.h"

namespace vitrine::client {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: the text does not begin with UTF-8.
};

// The Unicode standard, table 3-7: shortest form, no surrogates.
Character Decode(std::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  const uint32_t lead = byte(0);
  if (text.empty()) return {};
  if (lead < 0x80) return {lead, 1};
  if (lead >= 0xC2 && lead <= 0xDF && continues(1)) {
    return {(lead & 0x1Fu) << 6 | (byte(1) & 0x3Fu), 2};
  }
  if (lead >= 0xE0 && lead <= 0xEF && continues(1) && continues(2)) {
    const uint32_t code = (lead & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
    if (code >= 0x800 && (code < 0xD800 || code > 0xDFFF)) return {code, 3};
  }
  if (lead >= 0xF0 && lead <= 0xF4 && continues(1) && continues(2) && continues(3)) {
    const uint32_t code =
        (lead & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu);
    if (code >= 0x10000 && code <= 0x10FFFF) return {code, 4};
  }
  return {};
}

struct CodeRange {
  uint32_t first;
  uint32_t last;
};

// Coarse: East Asian scripts and pictures; marks that combine.
constexpr std::array<CodeRange, 9> kWide = {{{0x1100, 0x115F},
                                             {0x2E80, 0xA4CF},
                                             {0xAC00, 0xD7A3},
                                             {0xF900, 0xFAFF},
                                             {0xFE30, 0xFE6F},
                                             {0xFF00, 0xFF60},
                                             {0xFFE0, 0xFFE6},
                                             {0x1F300, 0x1FAFF},
                                             {0x20000, 0x3FFFD}}};
constexpr std::array<CodeRange, 4> kCombining = {
    {{0x0300, 0x036F}, {0x200B, 0x200F}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}}};

template <size_t N>
bool IsIn(const std::array<CodeRange, N>& ranges, uint32_t code) {
  return std::any_of(ranges.begin(), ranges.end(), [code](const CodeRange& range) {
    return code >= range.first && code <= range.last;
  });
}

size_t WidthOf(uint32_t code) {
  if (IsIn(kCombining, code)) return 0;
  return IsIn(kWide, code) ? 2 : 1;
}

bool IsControl(uint32_t code) { return code < 0x20 || (code >= 0x7F && code < 0xA0); }

}  // namespace

std::string VisibleText(std::string_view bytes, bool ascii) {
  std::string text;
  while (!bytes.empty()) {
    const Character character = Decode(bytes);
    const size_t length = std::max<size_t>(1, character.bytes);
    if (character.bytes == 0 ||
        (IsControl(character.code) && character.code != '\n' && character.code != '\t')) {
      for (const char c : bytes.substr(0, length)) {
        text += absl::StrFormat("\\x%02X", static_cast<unsigned char>(c));
      }
    } else if (character.code == ' ') {
      text += ascii ? "_" : "\u00B7";
    } else if (character.code == '\n') {
      text += ascii ? "\\n" : "\u21B5";
    } else if (character.code == '\t') {
      text += ascii ? "\\t" : "\u21E5";
    } else {
      text += bytes.substr(0, length);
    }
    bytes.remove_prefix(length);
  }
  return text;
}

std::string_view FirstCharacter(std::string_view text) {
  return text.substr(0, std::max<size_t>(1, Decode(text).bytes));
}

size_t DisplayWidth(std::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    const Character character = Decode(text);
    width += WidthOf(character.code);
    text.remove_prefix(std::max<size_t>(1, character.bytes));
  }
  return width;
}

std::string FitWidth(std::string_view text, size_t width, bool ascii) {
  const size_t whole = DisplayWidth(text);
  if (whole <= width) return std::string(text) + std::string(width - whole, ' ');
  std::string fitted;
  size_t used = 0;
  while (!text.empty()) {
    const std::string_view character = FirstCharacter(text);
    const size_t next = DisplayWidth(character);
    if (used + next + 1 > width) break;
    fitted += character;
    used += next;
    text.remove_prefix(character.size());
  }
  if (used < width) fitted += ascii ? "~" : "\u2026";
  return fitted + std::string(width - std::min(width, used + 1), ' ');
}

}  // namespace vitrine::client
