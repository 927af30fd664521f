#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/device_rows.h"

namespace vitrine::cuda {

// RmsNorm of kernels/rms_norm.h.
struct RmsNormParams {
  const float* input = nullptr;   // [rows, columns]
  const float* weight = nullptr;  // [columns]
  DeviceRows output;              // [rows, columns]
  int rows = 0;
  int columns = 0;
  float epsilon = 0.0f;
};
void RmsNorm(const RmsNormParams& params, cudaStream_t stream);

}  // namespace vitrine::cuda
