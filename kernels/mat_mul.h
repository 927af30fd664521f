#pragma once

#include "kernels/buffer.h"

namespace vitrine {

// output[r, n] (+)= dot(input[r], weight[n]) + bias[n]
// Sums run over columns in a fixed order that depends on neither `rows` nor the thread count.
struct MatMulArgs {
  const RowBuffer* input = nullptr;      // [rows, columns]
  const PackedMatrix* weight = nullptr;  // [n, columns], RowLayout::kStacked
  DeviceSpan<const float> bias = {};     // [n], or empty
  bool add_to_output = false;            // The residual connection: += instead of =.
  DeviceSpan<float> output;              // [rows, n]
  int rows = 0;
};

}  // namespace vitrine
