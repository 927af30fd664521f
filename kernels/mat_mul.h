#pragma once

#include "kernels/buffer.h"

namespace vitrine {

// With y = output_scale * (dot(input[r], weight[n]) + bias[n]):
//   output[r, n] (+)= y, or softcap * tanh(y / softcap) where there is a softcap
// Sums run over columns in a fixed order that depends on neither `rows` nor the thread count.
struct MatMulArgs {
  const RowBuffer* input = nullptr;      // [rows, columns]
  const PackedMatrix* weight = nullptr;  // [n, columns], RowLayout::kStacked
  DeviceSpan<const float> bias = {};     // [n], or empty
  float output_scale = 1.0f;             // Granite's residual and logit multipliers.
  float softcap = 0.0f;                  // Gemma 2's logits; 0: none. Not with add_to_output.
  bool add_to_output = false;            // The residual connection: += instead of =.
  DeviceSpan<float> output;              // [rows, n]
  int rows = 0;
};

}  // namespace vitrine
