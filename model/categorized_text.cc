#include "model/categorized_text.h"

#include <string>

namespace vitrine {

Utf8Character DecodeUtf8(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) -> char32_t { return static_cast<uint8_t>(text[i + k]); };
  const auto tail = [&](size_t k) -> char32_t { return byte(k) & 0x3F; };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | tail(1), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | tail(1) << 6 | tail(2), 3};
  return {(lead & 0x07) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3), 4};
}

void AppendUtf8(char32_t code_point, std::string& out) {
  const auto append = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  const auto tail = [&](int shift) { append(0x80 | (code_point >> shift & 0x3F)); };
  if (code_point < 0x80) {
    append(code_point);
  } else if (code_point < 0x800) {
    append(0xC0 | code_point >> 6);
    tail(0);
  } else if (code_point < 0x10000) {
    append(0xE0 | code_point >> 12);
    tail(6);
    tail(0);
  } else {
    append(0xF0 | code_point >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

size_t CategorizedText::SkipRun(size_t i, CategorySet set, size_t limit) const {
  for (; limit > 0 && i < size(); --limit) {
    const Utf8Character next = At(i);
    if ((Category(next.code_point) & set) == 0) break;
    i += next.length;
  }
  return i;
}

}  // namespace vitrine
