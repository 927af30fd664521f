// LayerNorm, one block per row; the variance is taken around the true mean. Later passes over the
// row hit L1 or L2. Bound as RMSNorm.
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/layer_norm.h"
#include "kernels/cuda/reduce.h"

namespace vitrine::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) LayerNormKernel(LayerNormParams p) {
  GPU_SHARED(scratch, float[kThreads / 32]);
  const float* input = p.input + static_cast<size_t>(blockIdx.x) * p.columns;
  const float count = static_cast<float>(p.columns);
  float sum = 0;
  for (int c = static_cast<int>(threadIdx.x); c < p.columns; c += kThreads) sum += input[c];
  const float mean = gpu::BlockSum<kThreads>(sum, scratch) / count;
  float squares = 0;
  for (int c = static_cast<int>(threadIdx.x); c < p.columns; c += kThreads) {
    squares = __fmaf_rn(input[c] - mean, input[c] - mean, squares);
  }
  squares = gpu::BlockSum<kThreads>(squares, scratch);
  const float scale = 1.0f / sqrtf(squares / count + p.epsilon);
  for (int c = static_cast<int>(threadIdx.x); c < p.columns; c += kThreads) {
    const float y = (input[c] - mean) * scale * p.weight[c];
    const float shifted = p.bias == nullptr ? y : y + p.bias[c];
    p.output.Store(static_cast<int>(blockIdx.x), c, shifted);
    if (p.normalized != nullptr) {
      p.normalized[static_cast<size_t>(blockIdx.x) * p.columns + c] = shifted;
    }
  }
}

}  // namespace

void LayerNorm(const LayerNormParams& params, cudaStream_t stream) {
  if (params.rows == 0) return;
  CheckCuda(gpu::Launch(
      &LayerNormKernel,
      {.grid = dim3(static_cast<unsigned>(params.rows)), .block = dim3(kThreads), .stream = stream},
      params));
}

}  // namespace vitrine::cuda
