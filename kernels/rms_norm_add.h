#pragma once

#include "kernels/device_span.h"

namespace vitrine {

// output[r] += input[r] / sqrt(mean(input[r]^2) + epsilon) * weight
// The residual connection of families that normalise what a block returns (Gemma 2, OLMo 2).
struct RmsNormAddArgs {
  DeviceSpan<const float> input;   // [rows, columns]
  DeviceSpan<const float> weight;  // [columns]
  float epsilon = 0.0f;
  int rows = 0;
  int columns = 0;
  DeviceSpan<float> output;  // [rows, columns], not `input`
};

}  // namespace vitrine
