#include "model/piece_scanners.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "model/piece_matchers.h"

namespace vitrine {
namespace {

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

size_t ScanNumbers(const CategorizedText& text, size_t begin) {
  return text.SkipRun(begin, text.Is(begin, kNumber) ? kNumber : ~kNumber);
}

size_t ScanUpToThreeNumbers(const CategorizedText& text, size_t begin) {
  return text.Is(begin, kNumber) ? text.SkipRun(begin, kNumber, 3) : text.SkipRun(begin, ~kNumber);
}

size_t ScanLineFeeds(const CategorizedText& text, size_t begin) {
  const size_t feed = std::min(text.bytes().find('\n', begin), text.size());
  if (feed > begin) return feed;
  return std::min(text.bytes().find_first_not_of('\n', begin), text.size());
}

size_t ScanSpaceMarks(const CategorizedText& text, size_t begin) {
  return std::min(text.bytes().find("\xE2\x96\x81", begin + 1), text.size());
}

size_t ScanThroughSpaces(const CategorizedText& text, size_t begin) {
  const size_t space = text.bytes().find(' ', begin);
  return space == std::string_view::npos ? text.size() : space + 1;
}

size_t ScanBloom(const CategorizedText& text, size_t begin) {
  // In the class of the published pattern the parentheses and the bar are characters like others.
  constexpr char32_t kSeparators[] = {'(',    '|',    '.',    ',',    '!',    '?',    ')',
                                      0x2026, 0x3002, 0xFF0C, 0x3001, 0x0964, 0x06D4, 0x060C};
  const auto is_part = [&](size_t i) {
    if (i >= text.size() || text.Is(i, kWhiteSpace)) return false;
    return std::ranges::find(kSeparators, text.At(i).code_point) == std::end(kSeparators);
  };
  const auto is_match = [&](size_t i) {
    return is_part(i) || (text.IsByte(i, ' ') && is_part(i + 1));
  };
  size_t end = text.Next(begin);
  if (is_match(begin)) {
    while (is_part(end)) end = text.Next(end);
  } else {
    while (end < text.size() && !is_match(end)) end = text.Next(end);
  }
  return end;
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
