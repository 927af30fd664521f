// Tokens that are found in a text as a whole, before any other rule applies: control tokens, and
// what was added to a vocabulary beside its own pieces. Const and thread-safe once built.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/batch.h"
#include "model/token_matcher.h"
#include "model/tokenizer.h"

namespace vitrine {

// The flags are those of an AddedToken of the Python package tokenizers.
struct AddedToken {
  std::string text;
  TokenId id = 0;
  bool is_control = false;   // Found only where parsing control tokens is allowed.
  bool lstrip = false;       // Takes the white space before it along.
  bool rstrip = false;       // Takes the white space after it along.
  bool single_word = false;  // Not where a word character touches it.
};

class AddedTokenMatcher {
 public:
  // Empty texts match nothing; of equal ones the lowest id counts.
  explicit AddedTokenMatcher(std::vector<AddedToken> tokens = {});

  // The tokens in `text`, well-formed UTF-8, in ascending order and without overlap: the leftmost
  // first, the longest of those. Control tokens only with options.parse_special, and only where no
  // byte of options.plain_ranges is part of them.
  std::vector<TokenMatch> Find(std::string_view text, const EncodeOptions& options) const;

  bool empty() const { return tokens_.empty(); }

 private:
  void AppendMatches(const TokenMatcher& matcher, std::string_view text, size_t begin, size_t end,
                     std::vector<TokenMatch>& matches) const;

  std::vector<AddedToken> tokens_;
  TokenMatcher ordinary_;  // Matches give an index into tokens_.
  TokenMatcher all_;
};

}  // namespace vitrine
