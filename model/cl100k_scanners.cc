// The patterns that descend from cl100k: Llama 3 and its variants, GPT-4o, Tekken, DeepSeek V3.
#include <algorithm>
#include <cstdint>

#include "model/piece_matchers.h"
#include "model/piece_scanners.h"

namespace vitrine {
namespace {

// What may stand in front of a word: [^\r\n\p{L}\p{N}].
bool IsWordPrefix(const CategorizedText& text, size_t i) {
  return text.Is(i, ~kWord) && !IsLineBreak(text, i);
}

//  ?OTHERS+ followed by any of `trailing`: the end, or `begin`.
size_t MatchOthers(const CategorizedText& text, size_t begin, CategorySet others,
                   std::string_view trailing) {
  const size_t run = text.IsByte(begin, ' ') ? begin + 1 : begin;
  if (!text.Is(run, others)) return begin;
  const size_t end = text.SkipRun(run, others);
  return std::min(text.bytes().find_first_not_of(trailing, end), text.size());
}

size_t MatchLinesOrSpace(const CategorizedText& text, size_t begin) {
  const size_t end = MatchLines(text, begin);
  return end != begin ? end : MatchWhiteSpace(text, begin);
}

// How a variant of Llama 3's pattern differs from it.
struct Cl100kVariant {
  size_t max_digits = 1;
  bool has_contractions = true;
  CategorySet letters = kLetter;
  std::string_view after_others = "\r\n";
};

size_t ScanVariant(const CategorizedText& text, size_t begin, const Cl100kVariant& variant) {
  if (variant.has_contractions) {
    const size_t end = MatchContraction(text, begin, LetterCase::kIgnore);
    if (end != begin) return end;
  }
  if (text.Is(begin, kNumber)) return text.SkipRun(begin, kNumber, variant.max_digits);
  const size_t letters = IsWordPrefix(text, begin) ? text.Next(begin) : begin;
  if (text.Is(letters, variant.letters)) return text.SkipRun(letters, variant.letters);
  // A mark that could stand before a word is one by itself where marks are letters.
  if (text.Is(begin, variant.letters)) return text.SkipRun(begin, variant.letters);
  const CategorySet others = ~(kWhiteSpace | kNumber | variant.letters);
  if (const size_t end = MatchOthers(text, begin, others, variant.after_others); end != begin) {
    return end;
  }
  return MatchLinesOrSpace(text, begin);
}

constexpr CategorySet kUpperOrUncased =
    SetOf(GeneralCategory::kLu, GeneralCategory::kLt, GeneralCategory::kLm, GeneralCategory::kLo) |
    kMark;
constexpr CategorySet kLowerOrUncased =
    SetOf(GeneralCategory::kLl, GeneralCategory::kLm, GeneralCategory::kLo) | kMark;

// U*W+ in the terms of the header: the end, or `begin`. U* gives back characters until one of them
// is a W, and that one is all that W+ finds then.
size_t MatchUpperThenLower(const CategorizedText& text, size_t begin) {
  size_t after_last_lower = begin;
  size_t i = begin;
  while (text.Is(i, kUpperOrUncased)) {
    const bool is_lower = text.Is(i, kLowerOrUncased);
    i = text.Next(i);
    if (is_lower) after_last_lower = i;
  }
  return text.Is(i, kLowerOrUncased) ? text.SkipRun(i, kLowerOrUncased) : after_last_lower;
}

// The two alternatives for words: the end, or `begin`.
size_t MatchCasedWord(const CategorizedText& text, size_t begin) {
  const size_t word = IsWordPrefix(text, begin) ? text.Next(begin) : begin;
  for (const size_t start : {word, begin}) {
    if (const size_t end = MatchUpperThenLower(text, start); end != start) return end;
  }
  for (const size_t start : {word, begin}) {
    if (const size_t end = text.SkipRun(start, kUpperOrUncased); end != start) return end;
  }
  return begin;
}

size_t ScanCased(const CategorizedText& text, size_t begin, size_t max_digits,
                 bool has_contractions) {
  if (const size_t end = MatchCasedWord(text, begin); end != begin) {
    return has_contractions ? MatchContraction(text, end, LetterCase::kIgnore) : end;
  }
  if (text.Is(begin, kNumber)) return text.SkipRun(begin, kNumber, max_digits);
  if (const size_t end = MatchOthers(text, begin, kOther, "\r\n/"); end != begin) return end;
  return MatchLinesOrSpace(text, begin);
}

bool IsAsciiLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

constexpr CategorySet kLetterOrMark = kLetter | kMark;
constexpr CategorySet kPunctuationOrSymbol = kPunctuation | kSymbol;

// Whether ScanDeepSeekV3 has a match at `i`.
bool IsDeepSeekV3Match(const CategorizedText& text, size_t i) {
  return text.Is(i, kLetterOrMark | kPunctuationOrSymbol | kWhiteSpace) ||
         text.Is(text.Next(i), kLetterOrMark);
}

}  // namespace

size_t ScanLlama3(const CategorizedText& text, size_t begin) {
  return ScanVariant(text, begin, {.max_digits = 3});
}

size_t ScanQwen2(const CategorizedText& text, size_t begin) {
  return ScanVariant(text, begin, {.max_digits = 1});
}

size_t ScanMiniCpm5(const CategorizedText& text, size_t begin) {
  return ScanVariant(text, begin, {.max_digits = SIZE_MAX});
}

size_t ScanSeedCoder(const CategorizedText& text, size_t begin) {
  return ScanVariant(text, begin, {.max_digits = 1, .after_others = ""});
}

size_t ScanUfakzeka(const CategorizedText& text, size_t begin) {
  return ScanVariant(text, begin, {.max_digits = 1, .has_contractions = false});
}

size_t ScanQwen35(const CategorizedText& text, size_t begin) {
  return ScanVariant(text, begin, {.max_digits = 1, .letters = kLetterOrMark});
}

size_t ScanGpt4o(const CategorizedText& text, size_t begin) {
  return ScanCased(text, begin, 3, true);
}

size_t ScanTekken(const CategorizedText& text, size_t begin) {
  return ScanCased(text, begin, 1, false);
}

size_t ScanDeepSeekV3(const CategorizedText& text, size_t begin) {
  const bool is_ascii = static_cast<unsigned char>(text[begin]) < 0x80;
  const size_t after = begin + 1;
  if (is_ascii && text.Is(begin, kPunctuationOrSymbol) && after < text.size() &&
      IsAsciiLetter(text[after])) {
    size_t end = after;
    while (end < text.size() && IsAsciiLetter(text[end])) ++end;
    return end;
  }
  const bool has_prefix =
      text.Is(begin, ~(kLetter | kPunctuationOrSymbol)) && !IsLineBreak(text, begin);
  const size_t letters = has_prefix ? text.Next(begin) : begin;
  for (const size_t start : {letters, begin}) {
    if (text.Is(start, kLetterOrMark)) return text.SkipRun(start, kLetterOrMark);
  }
  if (const size_t end = MatchOthers(text, begin, kPunctuationOrSymbol, "\r\n"); end != begin) {
    return end;
  }
  if (text.Is(begin, kWhiteSpace)) return MatchLinesOrSpace(text, begin);
  size_t end = text.Next(begin);
  while (end < text.size() && !IsDeepSeekV3Match(text, end)) end = text.Next(end);
  return end;
}

}  // namespace vitrine
