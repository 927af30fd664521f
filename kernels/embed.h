#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/buffer.h"
#include "kernels/paged_batch.h"

namespace vitrine {

// How EmbedArgs names the token that an earlier Sample has put at `index` of EmbedArgs::drawn, so
// that a step can follow on tokens which the host has not seen.
constexpr int32_t DrawnToken(int32_t index) { return ~index; }

// What an entry of EmbedArgs::token_ids means. kNoToken counts as token 0: the row is worthless,
// but defined.
constexpr int32_t TokenOf(int32_t id, const int32_t* drawn) {
  return id >= 0 ? id : std::max(drawn[~id], 0);
}

// output[r] = scale * table[token of r] + position_table[position of r]
// The table may be the matrix of a tied output head.
struct EmbedArgs {
  const PackedMatrix* table = nullptr;  // [vocabulary, d_model], RowLayout::kStacked
  // [rows], host memory: ids within the vocabulary, or DrawnToken.
  std::span<const int32_t> token_ids;
  DeviceSpan<const int32_t> drawn = {};  // Token ids or kNoToken; only read through DrawnToken.
  float scale = 1.0f;
  DeviceSpan<const float> position_table = {};  // [positions, d_model] learned, or empty
  const PagedBatch* batch = nullptr;            // Only read with a position_table.
  DeviceSpan<float> output;                     // [rows, d_model]
};

}  // namespace vitrine
