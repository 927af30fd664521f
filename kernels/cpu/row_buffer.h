// Activations between two ops, in the formats that the matrix kernels read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/buffer.h"
#include "kernels/cpu/simd.h"

namespace vitrine::cpu {

// 32 columns of one row, quantised from the row's own values only. The kernels only broadcast from
// here, so all that belongs together lies together: a lone row costs one cache line per block when
// another core wrote it.
struct ActivationRow {
  int8_t values[kBlockColumns];
  float scale;         // Largest magnitude / 127.
  float scaled_sum;    // scale * sum of values; multiplies the minimum of a weight block.
  int32_t minus8_sum;  // -8 * sum of values; removes the offset of unsigned weights.
  int32_t low_sum;     // Sum of the first 16 values.
};

// The same 32 columns of all rows of a tile: a kernel that keeps a weight block in registers walks
// the rows through consecutive memory.
struct alignas(64) ActivationBlock {
  ActivationRow rows[kTileRows];
};

// Rows in one or both of two formats; which ones the consumers decide.
struct RowView {
  ActivationBlock* tiles = nullptr;  // [rows / kTileRows][blocks]
  float* floats = nullptr;           // [rows, stride]
  int blocks = 0;                    // Columns / 32, rounded up; what is beyond is zero.
  int columns = 0;
  bool wants_int8 = false;
  bool wants_floats = false;

  size_t stride() const { return static_cast<size_t>(blocks) * kBlockColumns; }
  ActivationBlock* Tile(int index) const {
    return tiles + static_cast<size_t>(index) * static_cast<size_t>(blocks);
  }
  ActivationRow& Block(int row, int block) const {
    return Tile(row / kTileRows)[block].rows[row % kTileRows];
  }
  float* Row(int row) const { return floats + static_cast<size_t>(row) * stride(); }
};

// Up to here every worker normalises for itself into rows of its own: that is cheaper than a
// barrier.
inline constexpr int kPrivateRows = 2;

class CpuRowBuffer final : public RowBuffer {
 public:
  // `memory` holds Bytes(...) zeroed bytes.
  CpuRowBuffer(int max_rows, int columns, bool wants_int8, bool wants_floats, int workers,
               Buffer memory);

  static size_t Bytes(int max_rows, int columns, int workers);

  const RowView& shared() const { return shared_; }
  RowView PrivateTo(int worker) const;

  // Where the op that was enqueued last writes its rows: into a copy for each worker, or not.
  bool holds_private_rows() const { return holds_private_rows_; }
  void set_holds_private_rows(bool value) { holds_private_rows_ = value; }

 private:
  Buffer memory_;
  RowView shared_;
  RowView first_private_;
  bool holds_private_rows_ = false;
};

}  // namespace vitrine::cpu
