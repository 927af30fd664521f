#pragma once

#include "kernels/buffer.h"

namespace vitrine {

// output[r] = (input[r] - mean) / sqrt(variance + epsilon) * weight + bias   (Ba et al., 2016)
// A row is computed from its own values only; the variance is that of the population.
struct LayerNormArgs {
  DeviceSpan<const float> input;      // [rows, columns]
  DeviceSpan<const float> weight;     // [columns]
  DeviceSpan<const float> bias = {};  // [columns], or empty
  float epsilon = 0.0f;
  int rows = 0;
  RowBuffer* output = nullptr;  // [rows, columns]
  // [rows, columns]: the same values in f32, or empty. May be `input`, which is then normalised in
  // place.
  DeviceSpan<float> normalized = {};
};

}  // namespace vitrine
