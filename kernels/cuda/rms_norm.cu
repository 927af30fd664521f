// RMSNorm, one block per row. The second pass over the row hits L1 or L2. Bound: rows * columns *
// (4 + 2) bytes at copy bandwidth; launch-bound at decode sizes.
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/rms_norm.h"

namespace vitrine::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) RmsNormKernel(RmsNormParams p) {
  GPU_SHARED(scratch, float[kThreads / 32]);
  const float* input = p.input + static_cast<size_t>(blockIdx.x) * p.columns;
  gpu::WaitForPrevious();
  float squares = 0;
  for (int c = static_cast<int>(threadIdx.x); c < p.columns; c += kThreads) {
    squares = __fmaf_rn(input[c], input[c], squares);
  }
  squares = gpu::BlockSum<kThreads>(squares, scratch);
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(p.columns) + p.epsilon);
  for (int c = static_cast<int>(threadIdx.x); c < p.columns; c += kThreads) {
    p.output.Store(static_cast<int>(blockIdx.x), c, input[c] * scale * p.weight[c]);
  }
}

}  // namespace

void RmsNorm(const RmsNormParams& params, cudaStream_t stream) {
  if (params.rows == 0) return;
  CheckCuda(gpu::Launch(&RmsNormKernel,
                        {.grid = dim3(static_cast<unsigned>(params.rows)),
                         .block = dim3(kThreads),
                         .stream = stream,
                         .overlap_previous = true},
                        params));
}

}  // namespace vitrine::cuda
