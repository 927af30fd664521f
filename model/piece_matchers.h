// Alternatives that the splitting patterns share. Each function returns the end of the match at
// `begin`, or `begin` when there is none.
#pragma once

#include <cstddef>

#include "model/categorized_text.h"

namespace vitrine {

inline constexpr CategorySet kWord = kLetter | kNumber;
inline constexpr CategorySet kOther = ~(kWhiteSpace | kWord);

enum class LetterCase { kExact, kIgnore };

// 's|'t|'re|'ve|'m|'ll|'d
size_t MatchContraction(const CategorizedText& text, size_t begin, LetterCase letter_case);

// \s+(?!\S)|\s+ on a run of white space: its last character stays behind for what follows it,
// unless it is the only one.
size_t MatchWhiteSpace(const CategorizedText& text, size_t begin);

// \s*[\r\n]+
size_t MatchLines(const CategorizedText& text, size_t begin);

inline bool IsLineBreak(const CategorizedText& text, size_t i) {
  return text.IsByte(i, '\r') || text.IsByte(i, '\n');
}

}  // namespace vitrine
