#pragma once

#include "kernels/buffer.h"

namespace vitrine {

// output[r] = input[r] / sqrt(mean(input[r]^2) + epsilon) * weight   (Zhang and Sennrich, 2019)
// A row is computed from its own values only.
struct RmsNormArgs {
  DeviceSpan<const float> input;   // [rows, columns]
  DeviceSpan<const float> weight;  // [columns]
  float epsilon = 0.0f;
  int rows = 0;
  RowBuffer* output = nullptr;  // [rows, columns]
};

}  // namespace vitrine
