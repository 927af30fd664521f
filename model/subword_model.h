// How one pre-token becomes tokens: byte-pair encoding or a unigram language model.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/bpe_merges.h"

namespace vitrine {

class SubwordModel {
 public:
  // Memory of one encoding, reused from pre-token to pre-token.
  struct Workspace {
    std::vector<PlacedToken> symbols;
    BpeMerges::Workspace merging;
  };

  virtual ~SubwordModel() = default;

  // Appends the tokens of `piece`, whose first byte has the offset `offset` in its text. Const and
  // thread-safe, with one workspace per thread.
  virtual void Encode(std::string_view piece, uint32_t offset, Workspace& workspace,
                      std::vector<PlacedToken>& tokens) const = 0;
};

}  // namespace vitrine
