// Row gather, one block per row. Bound: rows * columns * 8 bytes; launch-bound.
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/gather_rows.h"
#include "kernels/cuda/launch.h"

namespace vitrine::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) GatherRowsKernel(GatherRowsParams p) {
  const float* source = p.input + static_cast<size_t>(p.row_ids[blockIdx.x]) * p.columns;
  float* target = p.output + static_cast<size_t>(blockIdx.x) * p.columns;
  for (int c = static_cast<int>(threadIdx.x); c < p.columns; c += kThreads) target[c] = source[c];
}

}  // namespace

void GatherRows(const GatherRowsParams& params, cudaStream_t stream) {
  if (params.rows == 0) return;
  CheckCuda(gpu::Launch(
      &GatherRowsKernel,
      {.grid = dim3(static_cast<unsigned>(params.rows)), .block = dim3(kThreads), .stream = stream},
      params));
}

}  // namespace vitrine::cuda
