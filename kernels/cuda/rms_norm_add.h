#pragma once

#include <cuda_runtime_api.h>

namespace vitrine::cuda {

// RmsNormAdd of kernels/rms_norm_add.h.
struct RmsNormAddParams {
  const float* input = nullptr;   // [rows, columns]
  const float* weight = nullptr;  // [columns]
  float* output = nullptr;        // [rows, columns]
  int rows = 0;
  int columns = 0;
  float epsilon = 0.0f;
};
void RmsNormAdd(const RmsNormAddParams& params, cudaStream_t stream);

}  // namespace vitrine::cuda
