// f32 rows in the format of activations, one block per row. Bound: rows * columns * 6 bytes.
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pack_rows.h"

namespace vitrine::cuda {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) PackRowsKernel(PackRowsParams p) {
  const float* input = p.input + static_cast<size_t>(blockIdx.x) * p.columns;
  for (int c = static_cast<int>(threadIdx.x); c < p.columns; c += kThreads) {
    p.output.Store(static_cast<int>(blockIdx.x), c, input[c]);
  }
}

}  // namespace

void PackRows(const PackRowsParams& params, cudaStream_t stream) {
  if (params.rows == 0) return;
  CheckCuda(gpu::Launch(
      &PackRowsKernel,
      {.grid = dim3(static_cast<unsigned>(params.rows)), .block = dim3(kThreads), .stream = stream},
      params));
}

}  // namespace vitrine::cuda
