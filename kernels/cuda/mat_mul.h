#pragma once

#include <cuda_runtime_api.h>

#include "kernels/activated_mat_mul.h"
#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/device_weights.h"

namespace vitrine::cuda {

// Where the products of a matrix go: exactly one of `output` and `activated` is set.
struct MatMulParams {
  DeviceWeights weights;
  DeviceRows input;  // [rows, weights.columns]
  int rows = 0;
  int outputs = 0;              // Columns of the result; stored weight rows beyond are padding.
  const float* bias = nullptr;  // [outputs], or null; gated: [2 outputs], gate then up

  float* output = nullptr;  // [rows, output_stride]
  int output_stride = 0;
  bool add_to_output = false;
  float output_scale = 1.0f;
  float softcap = 0.0f;  // 0: none

  DeviceRows activated;  // [rows, first_activated + outputs]: activation(y), or gated
  int first_activated = 0;
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

// bf16 rows and any format but kF32Columns.
void MatMulSmall(const MatMulParams& params, cudaStream_t stream);  // 1 to kMaxSmallRows rows
void MatMulLarge(const MatMulParams& params, cudaStream_t stream);

// kF32Columns: f32 products in ascending order of columns, of f32 or bf16 rows.
void MatMulExact(const MatMulParams& params, cudaStream_t stream);

}  // namespace vitrine::cuda
