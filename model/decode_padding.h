// Makes decode steps alike, for backends that record steps and replay them.
#pragma once

#include "model/batch.h"

namespace vitrine {

// Pads steps in which every sequence decodes one token to a few batch sizes (1, 2, 4, 8, then
// multiples of 8) and block table widths (powers of two). Padding sequences compute token 0 at
// position 0 in blocks of their own, and nobody reads their rows.
class DecodePadding {
 public:
  // Padding sequences of one step at most, each of which takes one KV block.
  static constexpr int kMostSequences = 7;

  // Blocks [num_blocks, num_blocks + kMostSequences) are the padding's.
  DecodePadding(int max_step_sequences, int max_sequence_blocks, int num_blocks);

  // The padded form of `batch`, whose arrays keep their addresses from call to call and whose
  // sampling is left empty; null where `batch` is no such step or too large. Valid until the next
  // call.
  const Batch* Pad(const Batch& batch);

  // Equal for two results of Pad that differ only in what tokens, positions and blocks they name.
  static uint64_t Shape(const Batch& padded);

 private:
  const int max_sequences_;
  const int max_blocks_;
  const int first_block_;
  Batch padded_;
};

}  // namespace vitrine
