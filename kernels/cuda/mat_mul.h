#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "kernels/activated_mat_mul.h"
#include "kernels/cuda/device_weights.h"

namespace vitrine::cuda {

// Where the products of a matrix go: exactly one of `output` and `activated` is set. T is the type
// of activations, __nv_bfloat16 or, with WeightFormat::kF32Columns, float.
template <class T>
struct MatMulParams {
  DeviceWeights weights;
  const T* input = nullptr;  // [rows, input_stride], zero from the matrix' true columns on
  int input_stride = 0;      // At least weights.columns, a multiple of 8.
  int rows = 0;
  int outputs = 0;              // Columns of the result; stored rows beyond are padding.
  const float* bias = nullptr;  // [outputs], or null; gated: [2 outputs], gate then up

  float* output = nullptr;  // [rows, output_stride]
  int output_stride = 0;
  bool add_to_output = false;

  T* activated = nullptr;  // [rows, activated_stride]: activation(y), or gated
  int activated_stride = 0;
  Activation activation = Activation::kSilu;
  // Weight rows come in groups of 16, eight gates and their eight ups (kF32Columns: all gates,
  // then all ups); the result is activation(gate) * up.
  bool gated = false;
};

// A row of the result has the same bits whatever `rows` is: columns are cut into kColumnRanges
// ranges that depend on the weights' shape alone, each is added block by block, and the ranges'
// sums are added in ascending order. This holds across MatMulSmall and MatMulLarge.
inline constexpr int kColumnRanges = 8;
inline constexpr int kMaxSmallRows = 16;

void MatMulSmall(const MatMulParams<__nv_bfloat16>& params, cudaStream_t stream);  // 1 to 16 rows
void MatMulLarge(const MatMulParams<__nv_bfloat16>& params, cudaStream_t stream);
void MatMulExact(const MatMulParams<float>& params, cudaStream_t stream);  // kF32Columns

}  // namespace vitrine::cuda
