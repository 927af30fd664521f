#include "model/jinja/characters.h"

#include <algorithm>
#include <iterator>

#include "model/unicode_tables.h"

namespace vitrine::jinja {
namespace {

using enum GeneralCategory;

// Characters first, first + step, ..., last, whose mappings are these distances away.
struct CaseRange {
  uint32_t first;
  uint32_t last;
  uint32_t step;
  int32_t upper;
  int32_t lower;
  int32_t title;
};

// A character that a mapping turns into several.
struct SpecialCase {
  uint32_t code;
  std::string_view upper;
  std::string_view lower;
  std::string_view title;
};

constexpr CaseRange kCaseRanges[] = {
#define VITRINE_CASE_RANGES
#include "model/jinja/case_mapping.inc"
#undef VITRINE_CASE_RANGES
};
constexpr SpecialCase kSpecialCases[] = {
#include "model/jinja/case_mapping.inc"
};

constexpr uint32_t kCapitalSigma = 0x3a3;
constexpr uint32_t kFinalSigma = 0x3c2;

enum class Case { kUpper, kLower, kTitle };

bool Is(uint32_t code, CategorySet set) { return (SetOf(GeneralCategories()[code]) & set) != 0; }

void AppendMapped(std::string& out, uint32_t code, Case wanted) {
  const auto* const special =
      std::lower_bound(std::begin(kSpecialCases), std::end(kSpecialCases), code,
                       [](const SpecialCase& row, uint32_t c) { return row.code < c; });
  if (special != std::end(kSpecialCases) && special->code == code) {
    out += wanted == Case::kUpper ? special->upper
                                  : (wanted == Case::kLower ? special->lower : special->title);
    return;
  }
  const auto* const range =
      std::lower_bound(std::begin(kCaseRanges), std::end(kCaseRanges), code,
                       [](const CaseRange& row, uint32_t c) { return row.last < c; });
  int32_t distance = 0;
  if (range != std::end(kCaseRanges) && range->first <= code &&
      (code - range->first) % range->step == 0) {
    distance = wanted == Case::kUpper ? range->upper
                                      : (wanted == Case::kLower ? range->lower : range->title);
  }
  AppendCodePoint(out, static_cast<uint32_t>(static_cast<int32_t>(code) + distance));
}

bool IsCased(uint32_t code) { return Is(code, SetOf(kLu, kLl, kLt)); }

// Whether the sigma before `end` closes a word: something cased before it and nothing after.
bool IsFinalSigma(std::string_view text, size_t begin, size_t end) {
  size_t before = begin;
  while (before > 0 && (static_cast<uint8_t>(text[before - 1]) & 0xc0) == 0x80) --before;
  if (before == 0) return false;
  --before;
  const bool follows = IsCased(NextCodePoint(text, before));
  return follows && (end == text.size() || !IsCased(NextCodePoint(text, end)));
}

void AppendLower(std::string& out, std::string_view text, size_t begin, size_t end, uint32_t code) {
  if (code == kCapitalSigma && IsFinalSigma(text, begin, end)) {
    AppendCodePoint(out, kFinalSigma);
  } else {
    AppendMapped(out, code, Case::kLower);
  }
}

template <class Predicate>
Bounds StripWhere(std::string_view text, Ends ends, const Predicate& drops) {
  Bounds bounds = {0, text.size()};
  while (ends != Ends::kRight && bounds.begin < bounds.end) {
    size_t next = bounds.begin;
    if (!drops(NextCodePoint(text, next))) break;
    bounds.begin = next;
  }
  while (ends != Ends::kLeft && bounds.begin < bounds.end) {
    size_t last = bounds.end - 1;
    while ((static_cast<uint8_t>(text[last]) & 0xc0) == 0x80) --last;
    size_t next = last;
    if (!drops(NextCodePoint(text, next))) break;
    bounds.end = last;
  }
  return bounds;
}

}  // namespace

uint32_t NextCodePoint(std::string_view text, size_t& offset) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const uint32_t lead = byte(offset++);
  if (lead < 0x80) return lead;
  const int following = lead >= 0xf0 ? 3 : (lead >= 0xe0 ? 2 : 1);
  uint32_t code = lead & (0x3fU >> following);
  for (int i = 0; i < following && offset < text.size(); ++i) {
    code = code << 6 | (byte(offset++) & 0x3f);
  }
  return std::min(code, kCodePoints - 1);
}

void AppendCodePoint(std::string& text, uint32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
    return;
  }
  const int following = code >= 0x10000 ? 3 : (code >= 0x800 ? 2 : 1);
  constexpr uint32_t kLead[] = {0, 0xc0, 0xe0, 0xf0};
  text += static_cast<char>(kLead[following] | code >> (6 * following));
  for (int i = following - 1; i >= 0; --i) {
    text += static_cast<char>(0x80 | (code >> (6 * i) & 0x3f));
  }
}

size_t CountCodePoints(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
}

size_t OffsetOfCodePoint(std::string_view text, size_t index) {
  size_t offset = 0;
  for (; offset < text.size(); ++offset) {
    if ((static_cast<uint8_t>(text[offset]) & 0xc0) == 0x80) continue;
    if (index == 0) return offset;
    --index;
  }
  return offset;
}

bool IsSpace(uint32_t code) {
  // Python also counts the four information separators.
  return Is(code, kWhiteSpace) || (code >= 0x1c && code <= 0x1f);
}
bool IsLetter(uint32_t code) { return Is(code, kLetter); }
bool IsDecimal(uint32_t code) { return Is(code, SetOf(kNd)); }
bool IsNumeric(uint32_t code) { return Is(code, kNumber); }
bool IsUpper(uint32_t code) { return Is(code, SetOf(kLu)); }
bool IsLower(uint32_t code) { return Is(code, SetOf(kLl)); }
bool IsTitle(uint32_t code) { return Is(code, SetOf(kLt)); }
bool IsWordCharacter(uint32_t code) { return code == '_' || Is(code, kLetter | kNumber); }

std::string ToUpper(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) AppendMapped(out, NextCodePoint(text, i), Case::kUpper);
  return out;
}

std::string ToLower(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const uint32_t code = NextCodePoint(text, i);
    AppendLower(out, text, begin, i, code);
  }
  return out;
}

std::string ToTitle(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const uint32_t code = NextCodePoint(text, i);
    if (in_word) {
      AppendLower(out, text, begin, i, code);
    } else {
      AppendMapped(out, code, Case::kTitle);
    }
    in_word = IsCased(code);
  }
  return out;
}

std::string Capitalize(std::string_view text) {
  std::string out;
  if (text.empty()) return out;
  size_t rest = 0;
  AppendMapped(out, NextCodePoint(text, rest), Case::kTitle);
  return out + ToLower(text.substr(rest));
}

std::string SwapCase(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const uint32_t code = NextCodePoint(text, i);
    if (IsUpper(code)) {
      AppendLower(out, text, begin, i, code);
    } else {
      AppendMapped(out, code, Case::kUpper);
    }
  }
  return out;
}

Bounds StripSpace(std::string_view text, Ends ends) { return StripWhere(text, ends, IsSpace); }

Bounds StripCharacters(std::string_view text, std::string_view characters, Ends ends) {
  std::u32string set;
  for (size_t i = 0; i < characters.size();) set += NextCodePoint(characters, i);
  std::sort(set.begin(), set.end());
  return StripWhere(text, ends, [&](uint32_t code) {
    return std::binary_search(set.begin(), set.end(), static_cast<char32_t>(code));
  });
}

}  // namespace vitrine::jinja
