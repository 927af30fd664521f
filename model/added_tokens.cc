#include "model/added_tokens.h"

#include <algorithm>
#include <utility>

#include "model/categorized_text.h"

namespace vitrine {
namespace {

// Beyond letters, marks and numbers: connectors, and the two joiners (Unicode technical standard
// 18, annex C, \w).
bool IsWordCharacter(const CategorizedText& text, size_t i) {
  constexpr CategorySet kWord = kLetter | kMark | SetOf(GeneralCategory::kNd) |
                                SetOf(GeneralCategory::kNl) | SetOf(GeneralCategory::kPc);
  if (text.Is(i, kWord)) return true;
  const char32_t c = text.At(i).code_point;
  return c == 0x200C || c == 0x200D;
}

// The start of the character that ends at byte `end`, which is above 0.
size_t Previous(std::string_view text, size_t end) {
  size_t i = end - 1;
  while (i > 0 && (static_cast<uint8_t>(text[i]) & 0xC0) == 0x80) --i;
  return i;
}

bool StandsAlone(const CategorizedText& text, const TokenMatch& match) {
  const bool touches_left =
      match.begin > 0 && IsWordCharacter(text, Previous(text.bytes(), match.begin));
  const bool touches_right = match.end < text.size() && IsWordCharacter(text, match.end);
  return !touches_left && !touches_right;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.text.empty(); });
  std::ranges::stable_sort(tokens_, {}, &AddedToken::id);
  TokenMatcher::TokenTexts ordinary;
  TokenMatcher::TokenTexts all;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    all.emplace_back(tokens_[i].text, static_cast<TokenId>(i));
    if (!tokens_[i].is_control) ordinary.push_back(all.back());
  }
  ordinary_ = TokenMatcher(ordinary);
  all_ = TokenMatcher(all);
}

// Appends what `matcher` finds in text[begin, end), none of it before the end of the last match.
void AddedTokenMatcher::AppendMatches(const TokenMatcher& matcher, std::string_view text,
                                      size_t begin, size_t end,
                                      std::vector<TokenMatch>& matches) const {
  const CategorizedText characters(text);
  for (TokenMatch match : matcher.Find(text.substr(begin, end - begin))) {
    match.begin += begin;
    match.end += begin;
    const AddedToken& token = tokens_[static_cast<size_t>(match.id)];
    const size_t free_from = matches.empty() ? 0 : matches.back().end;
    if (match.begin < free_from) continue;
    if (token.single_word && !StandsAlone(characters, match)) continue;
    while (token.lstrip && match.begin > free_from) {
      const size_t previous = Previous(text, match.begin);
      if (!characters.Is(previous, kWhiteSpace)) break;
      match.begin = previous;
    }
    if (token.rstrip) match.end = characters.Prefix(end).SkipRun(match.end, kWhiteSpace);
    match.id = token.id;
    matches.push_back(match);
  }
}

std::vector<TokenMatch> AddedTokenMatcher::Find(std::string_view text,
                                                const EncodeOptions& options) const {
  std::vector<TokenMatch> matches;
  if (tokens_.empty()) return matches;
  if (!options.parse_special) {
    AppendMatches(ordinary_, text, 0, text.size(), matches);
    return matches;
  }
  if (options.plain_ranges.empty()) {
    AppendMatches(all_, text, 0, text.size(), matches);
    return matches;
  }
  // Between the plain ranges first, where any token may be; then the others in all that is left.
  std::vector<TokenMatch> parsed;
  size_t begin = 0;
  for (const ByteRange& plain : options.plain_ranges) {
    AppendMatches(all_, text, begin, plain.begin, parsed);
    begin = plain.end;
  }
  AppendMatches(all_, text, begin, text.size(), parsed);
  begin = 0;
  for (const TokenMatch& match : parsed) {
    AppendMatches(ordinary_, text, begin, match.begin, matches);
    matches.push_back(match);
    begin = match.end;
  }
  AppendMatches(ordinary_, text, begin, text.size(), matches);
  return matches;
}

}  // namespace vitrine
