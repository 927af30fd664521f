// Matrix products in f32 for exact numerics and f32 weights: one thread per result, columns in
// ascending order, fused multiply-adds. Weights are stored by column, so a warp reads 128 bytes in
// a row. Bound: 4 bytes per weight and row; not meant to be fast.
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mat_mul.h"
#include "kernels/cuda/mat_mul_epilogue.h"

namespace vitrine::cuda {
namespace {

constexpr int kThreads = 128;

__device__ inline float Dot(const MatMulParams& p, int row, int weight_row) {
  const float* w = static_cast<const float*>(p.weights.values) + weight_row;
  float sum = 0;
  for (int c = 0; c < p.weights.columns; ++c) {
    sum = __fmaf_rn(p.input.Load(row, c), w[static_cast<size_t>(c) * p.weights.rows], sum);
  }
  return sum;
}

__global__ void __launch_bounds__(kThreads) MatMulExactKernel(MatMulParams p) {
  const int output = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const int row = static_cast<int>(blockIdx.y);
  if (output >= p.outputs) return;
  if (p.gated) {
    StoreGated(p, row, output, Dot(p, row, output), Dot(p, row, p.outputs + output));
  } else {
    StoreProduct(p, row, output, Dot(p, row, output));
  }
}

}  // namespace

void MatMulExact(const MatMulParams& params, cudaStream_t stream) {
  VITRINE_CHECK(params.weights.format == WeightFormat::kF32Columns);
  if (params.rows == 0) return;
  const dim3 grid(static_cast<unsigned>((params.outputs + kThreads - 1) / kThreads),
                  static_cast<unsigned>(params.rows));
  CheckCuda(gpu::Launch(&MatMulExactKernel,
                        {.grid = grid, .block = dim3(kThreads), .stream = stream}, params));
}

}  // namespace vitrine::cuda
