#include "model/piece_scanners.h"

#include <string_view>

namespace vitrine {
namespace {

constexpr CategorySet kWord = kLetter | kNumber;
constexpr CategorySet kOther = ~(kWhiteSpace | kWord);

enum class LetterCase { kExact, kIgnore };

// Length of one letter of a contraction at byte `i`; 0 when it is another. Ignoring case, the long
// s (U+017F) is an s (simple case folding).
size_t MatchLetter(const CategorizedText& text, size_t i, char letter, LetterCase letter_case) {
  if (text.IsByte(i, letter)) return 1;
  if (letter_case == LetterCase::kExact) return 0;
  if (text.IsByte(i, static_cast<char>(letter - 'a' + 'A'))) return 1;
  const bool is_long_s = letter == 's' && text.IsByte(i, '\xC5') && text.IsByte(i + 1, '\xBF');
  return is_long_s ? 2 : 0;
}

// 's|'t|'re|'ve|'m|'ll|'d: the end of the match, or `begin`.
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

// \s+(?!\S)|\s+ on a run of white space: its last character stays behind for what follows it,
// unless it is the only one.
size_t MatchWhiteSpace(const CategorizedText& text, size_t begin) {
  size_t last = begin;
  size_t end = begin;
  while (text.Is(end, kWhiteSpace)) {
    last = end;
    end = text.Next(end);
  }
  return end == text.size() || last == begin ? end : last;
}

// What is punctuation for C in ASCII and a symbol for Unicode.
constexpr std::string_view kAsciiSymbols = "$+<=>^`|~";

bool IsPunctuation(const CategorizedText& text, size_t i, std::string_view symbols) {
  return text.Is(i, kPunctuation) || symbols.find(text[i]) != std::string_view::npos;
}

// The end of the run of characters that are punctuation, or that are not.
size_t SkipPunctuation(const CategorizedText& text, size_t i, bool wanted,
                       std::string_view symbols) {
  while (i < text.size() && IsPunctuation(text, i, symbols) == wanted) i = text.Next(i);
  return i;
}

bool IsDigit(char byte) { return byte >= '0' && byte <= '9'; }

bool IsLineBreak(const CategorizedText& text, size_t i) {
  return text.IsByte(i, '\r') || text.IsByte(i, '\n');
}

// \s*[\r\n]+: the end of the match, or `begin`.
size_t MatchLines(const CategorizedText& text, size_t begin) {
  size_t last_break_end = begin;
  for (size_t i = begin; text.Is(i, kWhiteSpace); i = text.Next(i)) {
    if (IsLineBreak(text, i)) last_break_end = i + 1;
  }
  return last_break_end;
}

// The llama 3 family, which differs in how many digits make a number.
size_t ScanCl100k(const CategorizedText& text, size_t begin, size_t max_digits) {
  if (const size_t end = MatchContraction(text, begin, LetterCase::kIgnore); end != begin) {
    return end;
  }
  if (text.Is(begin, kNumber)) return text.SkipRun(begin, kNumber, max_digits);

  const bool has_prefix = !text.Is(begin, kLetter) && !IsLineBreak(text, begin);
  const size_t letters = has_prefix ? text.Next(begin) : begin;
  if (text.Is(letters, kLetter)) return text.SkipRun(letters, kLetter);

  const size_t others = text.IsByte(begin, ' ') ? begin + 1 : begin;
  if (text.Is(others, kOther)) {
    size_t end = text.SkipRun(others, kOther);
    while (IsLineBreak(text, end)) ++end;
    return end;
  }
  if (const size_t end = MatchLines(text, begin); end != begin) return end;
  return MatchWhiteSpace(text, begin);
}

}  // namespace

size_t ScanGpt2(const CategorizedText& text, size_t begin) {
  if (const size_t end = MatchContraction(text, begin, LetterCase::kExact); end != begin) {
    return end;
  }
  const size_t run = text.IsByte(begin, ' ') ? begin + 1 : begin;
  for (const CategorySet set : {kLetter, kNumber, kOther}) {
    if (text.Is(run, set)) return text.SkipRun(run, set);
  }
  return MatchWhiteSpace(text, begin);
}

size_t ScanLlama3(const CategorizedText& text, size_t begin) { return ScanCl100k(text, begin, 3); }

size_t ScanQwen2(const CategorizedText& text, size_t begin) { return ScanCl100k(text, begin, 1); }

size_t ScanNumbers(const CategorizedText& text, size_t begin) {
  return text.SkipRun(begin, text.Is(begin, kNumber) ? kNumber : ~kNumber);
}

size_t ScanThreeDigits(const CategorizedText& text, size_t begin) {
  for (size_t i = begin; i + 3 <= text.size(); ++i) {
    if (IsDigit(text[i]) && IsDigit(text[i + 1]) && IsDigit(text[i + 2])) {
      return i == begin ? begin + 3 : i;
    }
  }
  return text.size();
}

size_t ScanPunctuation(const CategorizedText& text, size_t begin) {
  return SkipPunctuation(text, begin, IsPunctuation(text, begin, "$+<=>^~|"), "$+<=>^~|");
}

size_t ScanPunctuationRuns(const CategorizedText& text, size_t begin) {
  return SkipPunctuation(text, begin, IsPunctuation(text, begin, kAsciiSymbols), kAsciiSymbols);
}

size_t ScanSinglePunctuation(const CategorizedText& text, size_t begin) {
  if (IsPunctuation(text, begin, kAsciiSymbols)) return text.Next(begin);
  return SkipPunctuation(text, begin, false, kAsciiSymbols);
}

size_t ScanSingleNumbers(const CategorizedText& text, size_t begin) {
  return text.Is(begin, kNumber) ? text.Next(begin) : text.SkipRun(begin, ~kNumber);
}

}  // namespace vitrine
