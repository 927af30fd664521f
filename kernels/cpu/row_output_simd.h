// Writing rows in the formats that a row buffer asks for.
#pragma once

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

// Writes columns [32 block, 32 block + 32) of a row.
template <class S>
VITRINE_INLINE void WriteBlock(const RowView& rows, int row, int block, typename S::F low,
                               typename S::F high) {
  if (rows.wants_int8) QuantizeBlock<S>(low, high, rows.Block(row, block));
  if (!rows.wants_floats) return;
  float* out = rows.Row(row) + block * kBlockColumns;
  S::Store(out, low);
  S::Store(out + 16, high);
}

}  // namespace vitrine::cpu
