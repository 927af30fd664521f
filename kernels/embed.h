#pragma once

#include <cstdint>
#include <span>

#include "kernels/buffer.h"
#include "kernels/paged_batch.h"

namespace vitrine {

// output[r] = scale * table[token_ids[r]] + position_table[position of r]
// The table may be the matrix of a tied output head.
struct EmbedArgs {
  const PackedMatrix* table = nullptr;  // [vocabulary, d_model], RowLayout::kStacked
  std::span<const int32_t> token_ids;   // [rows], host memory, each within the vocabulary
  float scale = 1.0f;
  DeviceSpan<const float> position_table = {};  // [positions, d_model] learned, or empty
  const PagedBatch* batch = nullptr;            // Only read with a position_table.
  DeviceSpan<float> output;                     // [rows, d_model]
};

}  // namespace vitrine
