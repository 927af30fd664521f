// Which sequence and position each row of a step belongs to, and where its keys lie.
#pragma once

#include <cstdint>
#include <span>

namespace vitrine {

// A ragged batch: the rows of a sequence are consecutive and in ascending position. The arrays are
// host memory; those who enqueue an op keep them unchanged as long as kernels/backend.h says.
struct PagedBatch {
  std::span<const int32_t> row_begin;       // [sequences + 1], ascending from 0
  std::span<const int32_t> first_position;  // [sequences], position of the sequence's first row
  std::span<const int32_t> block_table;     // [sequences, max_blocks], block of position / 16
  int max_blocks = 0;

  int sequences() const { return static_cast<int>(first_position.size()); }
  int rows() const { return row_begin.empty() ? 0 : row_begin.back(); }
};

}  // namespace vitrine
