// Finds the texts of whole tokens inside a text: control tokens and user-defined ones. Leftmost
// match first, the longest of those, no overlaps. Const and thread-safe once built.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "model/batch.h"

namespace vitrine {

struct TokenMatch {
  size_t begin = 0;
  size_t end = 0;
  TokenId id = 0;
};

// An Aho-Corasick automaton (1975) of the reversed token texts, run from the end of the text to its
// start: at every position it knows the longest token that begins there, which makes the choice
// above linear in the text whatever the tokens are.
class TokenMatcher {
 public:
  using TokenTexts = std::vector<std::pair<std::string_view, TokenId>>;

  // Texts are not empty; of equal ones the lowest id counts.
  explicit TokenMatcher(const TokenTexts& tokens = {});

  std::vector<TokenMatch> Find(std::string_view text) const;

 private:
  struct State {
    uint32_t first_edge = 0;  // Into edges_, sorted by byte.
    uint32_t num_edges = 0;
    uint32_t fallback = 0;       // The longest proper suffix of this state that is a state.
    uint32_t longest_match = 0;  // Bytes of the longest token text that ends here; 0: none.
    TokenId match_id = 0;
  };
  struct Edge {
    uint8_t byte = 0;
    uint32_t target = 0;
  };

  // The target of an edge, or kNoState.
  uint32_t Target(uint32_t state, uint8_t byte) const;
  uint32_t Step(uint32_t state, uint8_t byte) const;

  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<uint32_t> from_root_;  // [256], kRoot where the root has no edge.
};

}  // namespace vitrine
