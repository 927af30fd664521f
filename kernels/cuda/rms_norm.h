#pragma once

#include <cuda_runtime_api.h>

namespace vitrine::cuda {

// RmsNorm of kernels/rms_norm.h. T: float or __nv_bfloat16.
template <class T>
struct RmsNormParams {
  const float* input = nullptr;   // [rows, columns]
  const float* weight = nullptr;  // [columns]
  T* output = nullptr;            // [rows, output_stride]
  int rows = 0;
  int columns = 0;
  int output_stride = 0;
  float epsilon = 0.0f;
};
template <class T>
void RmsNorm(const RmsNormParams<T>& params, cudaStream_t stream);

}  // namespace vitrine::cuda
