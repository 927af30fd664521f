#pragma once

#include <cstdint>
#include <span>

#include "kernels/buffer.h"

namespace vitrine {

// output[r] = scale * table[token_ids[r]]. The table may be the matrix of a tied output head.
struct EmbedArgs {
  const PackedMatrix* table = nullptr;  // [vocabulary, d_model], RowLayout::kStacked
  std::span<const int32_t> token_ids;   // [rows], host memory, each within the vocabulary
  float scale = 1.0f;
  DeviceSpan<float> output;  // [rows, d_model]
};

}  // namespace vitrine
