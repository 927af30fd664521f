// Writing rows in the formats that a row buffer asks for.
#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/row_buffer.h"
#include "kernels/cpu/simd.h"

namespace vitrine::cpu {

// Quantises 32 values of one row. Sums stay integers: an fp16 sum would overflow.
template <class S>
VITRINE_INLINE void QuantizeBlock(typename S::F low, typename S::F high, ActivationRow& row) {
  const float largest = S::LargestMagnitude(low, high);
  const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
  const int32_t low_sum = S::Quantize(low, inverse, row.values);
  const int32_t sum = low_sum + S::Quantize(high, inverse, row.values + 16);
  const float scale = largest * (1.0f / 127.0f);
  row.scale = scale;
  row.scaled_sum = scale * static_cast<float>(sum);
  row.minus8_sum = -8 * sum;
  row.low_sum = low_sum;
}

// Writes the rows of one op. Finish comes last: until then blocks may wait in the worker's scratch
// for others, where S quantises several at once.
template <class S>
class BlockWriter {
 public:
  BlockWriter(const RowView& rows, PendingBlocks& pending) : rows_(rows), pending_(pending) {}

  const RowView& rows() const { return rows_; }

  // Asks for the lines of a block of the rows of one tile ahead of writing them.
  VITRINE_INLINE void FetchBlock(int first_row, int block, int rows) const {
    if (!rows_.wants_int8) return;
    const char* begin = reinterpret_cast<const char*>(&rows_.Block(first_row, block));
    const auto bytes = static_cast<ptrdiff_t>(sizeof(ActivationRow)) * rows;
    for (ptrdiff_t offset = 0; offset < bytes; offset += 64) S::FetchForWriting(begin + offset);
  }

  // Columns [32 block, 32 block + 32) of a row.
  VITRINE_INLINE void Write(int row, int block, typename S::F low, typename S::F high) {
    if (rows_.wants_int8) Quantize(low, high, rows_.Block(row, block));
    if (!rows_.wants_floats) return;
    float* out = rows_.Row(row) + block * kBlockColumns;
    S::Store(out, low);
    S::Store(out + 16, high);
  }

  VITRINE_INLINE void Quantize(typename S::F low, typename S::F high, ActivationRow& row) {
    if constexpr (S::kQuantizesTogether) {
      float* values = pending_.values[count_];
      S::Store(values, low);
      S::Store(values + 16, high);
      pending_.rows[count_] = &row;
      if (++count_ == kTileRows) QuantizePending();
    } else {
      QuantizeBlock<S>(low, high, row);
    }
  }

  void Finish() {
    if constexpr (S::kQuantizesTogether) {
      if (count_ <= kFewBlocks) {
        for (int i = 0; i < count_; ++i) {
          const float* values = pending_.values[i];
          QuantizeBlock<S>(S::Load(values), S::Load(values + 16), *pending_.rows[i]);
        }
      } else {
        for (int i = count_; i < kTileRows; ++i) pending_.rows[i] = &pending_.nobody;
        QuantizePending();
      }
      count_ = 0;
    }
  }

 private:
  // So many are not worth the work for 16.
  static constexpr int kFewBlocks = 4;

  VITRINE_INLINE void QuantizePending() {
    S::QuantizeBlocks(pending_.values, pending_.rows);
    count_ = 0;
  }

  const RowView rows_;
  PendingBlocks& pending_;
  int count_ = 0;
};

}  // namespace vitrine::cpu
