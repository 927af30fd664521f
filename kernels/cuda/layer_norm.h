#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/device_rows.h"

namespace vitrine::cuda {

// LayerNorm of kernels/layer_norm.h.
struct LayerNormParams {
  const float* input = nullptr;   // [rows, columns]
  const float* weight = nullptr;  // [columns]
  const float* bias = nullptr;    // [columns], or null
  DeviceRows output;              // [rows, columns]
  float* normalized = nullptr;    // [rows, columns], or null; may be `input`
  int rows = 0;
  int columns = 0;
  float epsilon = 0.0f;
};
void LayerNorm(const LayerNormParams& params, cudaStream_t stream);

}  // namespace vitrine::cuda
