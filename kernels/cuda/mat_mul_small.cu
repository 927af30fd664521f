// Matrix products for 1 to 16 rows of activations: every weight is read once, with 16-byte loads
// straight into operands of the matrix instruction. A block makes 16 outputs; its warps take one
// range of columns each and are added in order. Weights are operand A, activations the 8 columns
// of B. Bound: the weights' bytes at copy bandwidth (bf16 2, Q8_0 1.0625, Q4_1 0.625, Q4_0 0.5625
// bytes per weight).
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mat_mul.h"
#include "kernels/cuda/mat_mul_epilogue.h"

namespace vitrine::cuda {
namespace {

constexpr int kWarps = kColumnRanges, kThreads = kWarps * 32, kOutputs = 16;

// Adds the ranges in order; one thread per (weight row, activation row).
template <int kRows>
__device__ void Finish(const float (&partial)[kWarps][kOutputs][kRows + 1], const MatMulParams& p) {
  const int r = static_cast<int>(threadIdx.x) % kOutputs;
  const int row = static_cast<int>(threadIdx.x) / kOutputs;
  const int first = static_cast<int>(blockIdx.x) * kOutputs;
  if (row >= p.rows || row >= kRows) return;
  const auto total = [&](int weight_row) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += partial[w][weight_row][row];
    return sum;
  };
  if (!p.gated) {
    StoreProduct(p, row, first + r, total(r));
  } else if (r < kOutputs / 2) {
    StoreGated(p, row, first / 2 + r, total(r), total(r + kOutputs / 2));
  }
}

// kTiles: groups of eight rows of activations.
template <class Chunk, int kTiles>
__global__ void __launch_bounds__(kThreads) MatMulSmallKernel(MatMulParams p) {
  GPU_SHARED(partial, float[kWarps][kOutputs][kTiles * 8 + 1]);
  constexpr int kChunkColumns = Chunk::kBlocks * kBlockColumns;
  const DeviceWeights& m = p.weights;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int q = lane % 4;
  const int row0 = static_cast<int>(blockIdx.x) * kOutputs + lane / 4;
  const int rows[2] = {min(row0, m.rows - 1), min(row0 + 8, m.rows - 1)};  // Past the end: unused.
  const int chunks = (m.columns + kChunkColumns - 1) / kChunkColumns;
  const int range = (chunks + kColumnRanges - 1) / kColumnRanges;
  const int begin = warp * range, end = min(begin + range, chunks);
  Chunk w;
  if (begin < end) w.Load(m, rows, begin, q);
  gpu::WaitForPrevious();  // Weights never change; activations do.

  const auto* input = static_cast<const __nv_bfloat16*>(p.input.data);
  const __nv_bfloat16* x[kTiles];
  GPU_UNROLL
  for (int t = 0; t < kTiles; ++t) {
    const int row = t * 8 + lane / 4;
    x[t] = row < p.rows ? input + static_cast<size_t>(row) * p.input.stride : nullptr;
  }
  float acc[kTiles][4] = {};
  for (int chunk = begin; chunk < end; ++chunk) {
    Chunk next = w;
    if (chunk + 1 < end) next.Load(m, rows, chunk + 1, q);
    GPU_UNROLL
    for (int b = 0; b < Chunk::kBlocks; ++b) {
      const int column = chunk * kChunkColumns + b * kBlockColumns;
      if (column >= m.columns) break;
      GPU_UNROLL
      for (int t = 0; t < kTiles; ++t) {
        uint32_t activations[4] = {};
        if (x[t] != nullptr) LoadActivations(activations, x[t] + column, q);
        AddBlock(acc[t], w, b, activations);
      }
    }
    w = next;
  }
  GPU_UNROLL
  for (int t = 0; t < kTiles; ++t) {
    GPU_UNROLL
    for (int e = 0; e < 4; ++e) {
      partial[warp][lane / 4 + e / 2 * 8][t * 8 + q * 2 + e % 2] = acc[t][e];
    }
  }
  __syncthreads();
  Finish<kTiles * 8>(partial, p);
}

}  // namespace

void MatMulSmall(const MatMulParams& params, cudaStream_t stream) {
  VITRINE_CHECK_LE(params.rows, kMaxSmallRows);
  VITRINE_CHECK(!params.input.is_f32);
  if (params.rows == 0) return;
  const int blocks = (params.weights.rows + kOutputs - 1) / kOutputs;
  const gpu::LaunchConfig config{.grid = dim3(static_cast<unsigned>(blocks)),
                                 .block = dim3(kThreads),
                                 .stream = stream,
                                 .overlap_previous = true};
  DispatchChunk(params.weights.format, [&]<class Chunk>() {
    CheckCuda(params.rows <= 8 ? gpu::Launch(&MatMulSmallKernel<Chunk, 1>, config, params)
                               : gpu::Launch(&MatMulSmallKernel<Chunk, 2>, config, params));
  });
}

}  // namespace vitrine::cuda
