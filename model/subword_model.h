// How one pre-token becomes tokens: byte-pair encoding or a unigram language model.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/bpe_merges.h"

namespace vitrine {

// The best segmentation of a text that ends at one of its bytes.
struct LatticeNode {
  double score = 0.0;
  uint32_t begin = 0;  // Of its last piece.
  int32_t piece = 0;   // Which one that is, in the numbers of the model.
  bool is_reached = false;
};

class SubwordModel {
 public:
  // Memory of one encoding, reused from pre-token to pre-token.
  struct Workspace {
    std::vector<PlacedToken> symbols;
    BpeMerges::Workspace merging;
    std::vector<LatticeNode> lattice;
    std::vector<uint32_t> ends;  // Of the pieces of a segmentation, the last first.
  };

  virtual ~SubwordModel() = default;

  // Appends the tokens of `piece`, whose first byte has the offset `offset` in its text. Const and
  // thread-safe, with one workspace per thread.
  virtual void Encode(std::string_view piece, uint32_t offset, Workspace& workspace,
                      std::vector<PlacedToken>& tokens) const = 0;
};

}  // namespace vitrine
