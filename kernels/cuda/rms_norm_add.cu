// RMSNorm of what a block returned, added to the residual, one block per row. Bound: rows * columns
// * 12 bytes at copy bandwidth; launch-bound at decode sizes.
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/rms_norm_add.h"

namespace vitrine::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) RmsNormAddKernel(RmsNormAddParams p) {
  GPU_SHARED(scratch, float[kThreads / 32]);
  const float* input = p.input + static_cast<size_t>(blockIdx.x) * p.columns;
  float* output = p.output + static_cast<size_t>(blockIdx.x) * p.columns;
  float squares = 0;
  for (int c = static_cast<int>(threadIdx.x); c < p.columns; c += kThreads) {
    squares = __fmaf_rn(input[c], input[c], squares);
  }
  squares = gpu::BlockSum<kThreads>(squares, scratch);
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(p.columns) + p.epsilon);
  for (int c = static_cast<int>(threadIdx.x); c < p.columns; c += kThreads) {
    output[c] += input[c] * scale * p.weight[c];
  }
}

}  // namespace

void RmsNormAdd(const RmsNormAddParams& params, cudaStream_t stream) {
  if (params.rows == 0) return;
  CheckCuda(gpu::Launch(
      &RmsNormAddKernel,
      {.grid = dim3(static_cast<unsigned>(params.rows)), .block = dim3(kThreads), .stream = stream},
      params));
}

}  // namespace vitrine::cuda
