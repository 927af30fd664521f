#include "model/piece_matchers.h"

#include <string_view>

namespace vitrine {
namespace {

// Length of one letter of a contraction at byte `i`; 0 when it is another. Ignoring case, the long
// s (U+017F) is an s (simple case folding).
size_t MatchLetter(const CategorizedText& text, size_t i, char letter, LetterCase letter_case) {
  if (text.IsByte(i, letter)) return 1;
  if (letter_case == LetterCase::kExact) return 0;
  if (text.IsByte(i, static_cast<char>(letter - 'a' + 'A'))) return 1;
  const bool is_long_s = letter == 's' && text.IsByte(i, '\xC5') && text.IsByte(i + 1, '\xBF');
  return is_long_s ? 2 : 0;
}

}  // namespace

size_t MatchContraction(const CategorizedText& text, size_t begin, LetterCase letter_case) {
  static constexpr std::string_view kEndings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
  if (!text.IsByte(begin, '\'')) return begin;
  for (const std::string_view ending : kEndings) {
    size_t end = begin + 1;
    for (const char letter : ending) {
      const size_t length = MatchLetter(text, end, letter, letter_case);
      end = length == 0 ? begin : end + length;
      if (length == 0) break;
    }
    if (end != begin) return end;
  }
  return begin;
}

size_t MatchWhiteSpace(const CategorizedText& text, size_t begin) {
  size_t last = begin;
  size_t end = begin;
  while (text.Is(end, kWhiteSpace)) {
    last = end;
    end = text.Next(end);
  }
  return end == text.size() || last == begin ? end : last;
}

size_t MatchLines(const CategorizedText& text, size_t begin) {
  size_t last_break_end = begin;
  for (size_t i = begin; text.Is(i, kWhiteSpace); i = text.Next(i)) {
    if (IsLineBreak(text, i)) last_break_end = i + 1;
  }
  return last_break_end;
}

}  // namespace vitrine
