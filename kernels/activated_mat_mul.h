#pragma once

#include "kernels/buffer.h"

namespace vitrine {

enum class Activation {
  kSilu,      // x / (1 + exp(-x))
  kGeluErf,   // x/2 (1 + erf(x / sqrt(2)))
  kGeluTanh,  // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  kRelu,      // max(x, 0)
  kReluSquared,
};

// The first half of a feed-forward block. With y = weight * input + bias:
//   RowLayout::kGateUp    output[r, f] = activation(y_gate[r, f]) * y_up[r, f]   (Shazeer, 2020)
//   RowLayout::kStacked   output[r, f] = activation(y[r, f])
struct ActivatedMatMulArgs {
  const RowBuffer* input = nullptr;      // [rows, columns]
  const PackedMatrix* weight = nullptr;  // kGateUp: [2 f, columns]; kStacked: [f, columns]
  DeviceSpan<const float> bias = {};     // [weight rows], gate then up, or empty
  Activation activation = Activation::kSilu;
  RowBuffer* output = nullptr;  // [rows, f]
  int rows = 0;
};

}  // namespace vitrine
