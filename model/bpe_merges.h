// Byte-pair merging: the part of byte-pair encoding that runs inside one pre-token (Sennrich et
// al., 2016). Const and thread-safe once built.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "model/batch.h"

namespace vitrine {

// A token of a text and the byte at which it begins.
struct PlacedToken {
  TokenId id = 0;
  uint32_t offset = 0;
};

class BpeMerges {
 public:
  // Memory of one encoding, reused from pre-token to pre-token.
  struct Workspace;

  // Merging `left` and `right` gives `merged`. Lower ranks merge first, equal ranks from the left;
  // ranks are not negative. A pair keeps the first rule it gets.
  void Add(TokenId left, TokenId right, int32_t rank, TokenId merged);
  void Reserve(size_t count) { rules_.reserve(count); }

  // Replaces `symbols` by what is left when no neighbours can be merged any more; each merge takes
  // the pair of lowest rank, the leftmost of those. O(n log n) for n symbols.
  void Apply(std::vector<PlacedToken>& symbols, Workspace& workspace) const;

 private:
  static constexpr int32_t kNoRank = INT32_MAX;
  struct Rule {
    int32_t rank = kNoRank;
    TokenId merged = 0;
  };
  struct Node;

  Rule Find(TokenId left, TokenId right) const;
  void ApplyBySearch(std::vector<PlacedToken>& symbols) const;
  void ApplyByHeap(std::vector<PlacedToken>& symbols, Workspace& workspace) const;
  void Refresh(uint32_t index, Workspace& workspace) const;

  absl::flat_hash_map<uint64_t, Rule> rules_;
};

// A symbol in the list of those not merged away, and the rule for it and its successor.
struct BpeMerges::Node {
  PlacedToken token;
  uint32_t previous = 0;
  uint32_t next = 0;
  Rule rule;
};

struct BpeMerges::Workspace {
  std::vector<Node> nodes;
  std::vector<uint64_t> heap;  // Candidates: rank << 32 | index of the left symbol; lowest on top.
};

}  // namespace vitrine
