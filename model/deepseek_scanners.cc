// The stages that split text for DeepSeek's models before V3.
#include <algorithm>
#include <iterator>

#include "model/piece_matchers.h"
#include "model/piece_scanners.h"

namespace vitrine {
namespace {

struct CodePointRange {
  char32_t first;
  char32_t last;
};

// The letters that the published pattern lists.
constexpr CodePointRange kCasedLetters[] = {
    {0x41, 0x5A},       {0x61, 0x7A},       {0xB5, 0xB5},       {0xC0, 0xD6},
    {0xD8, 0xF6},       {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},
    {0x295, 0x2AF},     {0x370, 0x373},     {0x376, 0x377},     {0x37B, 0x37D},
    {0x37F, 0x37F},     {0x386, 0x386},     {0x388, 0x38A},     {0x38C, 0x38C},
    {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},     {0x48A, 0x52F},
    {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},
    {0x1C90, 0x1CBA},   {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},
    {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},   {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},
    {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},   {0x1F5B, 0x1F5B},
    {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},   {0x1FB6, 0x1FBC},
    {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},
    {0x1FD6, 0x1FDB},   {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},
    {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210A, 0x2113},   {0x2115, 0x2115},
    {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},   {0x2128, 0x2128},
    {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},   {0x213C, 0x213F},
    {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2184},   {0x2C00, 0x2C7B},
    {0x2C7E, 0x2CE4},   {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF3},   {0xA640, 0xA66D},
    {0xA680, 0xA69B},   {0xA722, 0xA76F},   {0xA771, 0xA787},   {0xA78B, 0xA78E},
    {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},   {0xFF21, 0xFF3A},
    {0xFF41, 0xFF5A},   {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB},
    {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
};

constexpr CodePointRange kAsciiPunctuation[] = {
    {'!', '/'}, {':', '~'}, {0x2018, 0x201F}, {0x3000, 0x3002}, {0xFF01, 0xFF0F}, {0xFF1A, 0xFF5E},
};

constexpr CodePointRange kHan[] = {{0x0800, 0x9FA5}, {0xAC00, 0xD7FF}};
constexpr CodePointRange kHanAndKana[] = {{0x3040, 0x30FF}, {0x4E00, 0x9FA5}};

template <size_t kSize>
bool IsIn(const CodePointRange (&ranges)[kSize], char32_t c) {
  const CodePointRange* range = std::ranges::lower_bound(ranges, c, {}, &CodePointRange::last);
  return range != std::end(ranges) && range->first <= c;
}

// SET+, or the gap up to the next match. `is_part` says whether the character at a byte is in SET.
template <class IsPart>
size_t ScanRuns(const CategorizedText& text, size_t begin, IsPart is_part) {
  const bool wanted = is_part(begin);
  size_t end = begin;
  while (end < text.size() && is_part(end) == wanted) end = text.Next(end);
  return end;
}

// \s?SET+, or the gap up to the next match.
template <class IsPart>
size_t ScanSpacedRuns(const CategorizedText& text, size_t begin, IsPart is_part) {
  const auto is_match = [&](size_t i) {
    if (is_part(i)) return true;
    const size_t next = text.Next(i);
    return text.Is(i, kWhiteSpace) && next < text.size() && is_part(next);
  };
  size_t end = text.Next(begin);
  if (is_match(begin)) {
    while (end < text.size() && is_part(end)) end = text.Next(end);
  } else {
    while (end < text.size() && !is_match(end)) end = text.Next(end);
  }
  return end;
}

}  // namespace

size_t ScanLineBreaks(const CategorizedText& text, size_t begin) {
  if (IsLineBreak(text, begin)) return begin + 1;
  return std::min(text.bytes().find_first_of("\r\n", begin), text.size());
}

size_t ScanCasedLetters(const CategorizedText& text, size_t begin) {
  return ScanSpacedRuns(text, begin,
                        [&](size_t i) { return IsIn(kCasedLetters, text.At(i).code_point); });
}

size_t ScanSpacedLetters(const CategorizedText& text, size_t begin) {
  return ScanSpacedRuns(text, begin, [&](size_t i) { return text.Is(i, kLetter); });
}

size_t ScanAsciiPunctuation(const CategorizedText& text, size_t begin) {
  return ScanSpacedRuns(text, begin,
                        [&](size_t i) { return IsIn(kAsciiPunctuation, text.At(i).code_point); });
}

size_t ScanSpacedPunctuation(const CategorizedText& text, size_t begin) {
  return ScanSpacedRuns(text, begin, [&](size_t i) { return text.Is(i, kPunctuation); });
}

size_t ScanTrailingSpace(const CategorizedText& text, size_t begin) {
  size_t end = text.size();
  while (end > begin) {
    size_t previous = end - 1;
    while (previous > begin && (static_cast<unsigned char>(text[previous]) & 0xC0) == 0x80) {
      --previous;
    }
    if (!text.Is(previous, kWhiteSpace)) break;
    end = previous;
  }
  return end == begin ? text.size() : end;
}

size_t ScanHan(const CategorizedText& text, size_t begin) {
  return ScanRuns(text, begin, [&](size_t i) { return IsIn(kHan, text.At(i).code_point); });
}

size_t ScanHanAndKana(const CategorizedText& text, size_t begin) {
  return ScanRuns(text, begin, [&](size_t i) { return IsIn(kHanAndKana, text.At(i).code_point); });
}

}  // namespace vitrine
