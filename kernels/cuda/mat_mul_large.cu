// Matrix products for many rows of activations: blocks of 128 outputs x 64 rows. Each of the 8
// warps owns 16 outputs and streams their weights into operands; activations are shared by all
// warps and arrive through cp.async, one chunk of columns ahead. The order of additions is that of
// the kernel for few rows. Bound: 2 * rows * outputs * columns flops at the rate of mma.sync (about
// two thirds of an H200's bf16 peak).
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/mat_mul.h"
#include "kernels/cuda/mat_mul_epilogue.h"

namespace vitrine::cuda {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * 32, kWarpOutputs = 16, kOutputs = 128, kRows = 64;
constexpr int kTiles = kRows / 8;

// One chunk of activations. A lane reads 16 bytes at (row lane / 4, 8 (lane % 4)), so eight lanes
// read 128 bytes in a row and no bank twice.
template <int kBlocks>
struct Stage {
  __nv_bfloat16 x[kBlocks][kRows][kBlockColumns];
};

// Starts the copy of one chunk; what lies outside the activations becomes zero.
template <int kBlocks>
__device__ void LoadStage(Stage<kBlocks>& stage, const MatMulParams& p, int row0, int chunk) {
  constexpr int kVectors = kBlockColumns / 8;
  const auto* input = static_cast<const __nv_bfloat16*>(p.input.data);
  for (int i = static_cast<int>(threadIdx.x); i < kBlocks * kRows * kVectors; i += kThreads) {
    const int b = i / (kRows * kVectors), r = i / kVectors % kRows, v = i % kVectors;
    const int column = (chunk * kBlocks + b) * kBlockColumns + v * 8;
    const bool valid = row0 + r < p.rows && column < p.weights.columns;
    const size_t at = valid ? static_cast<size_t>(row0 + r) * p.input.stride + column : 0;
    gpu::CpAsync16(&stage.x[b][r][v * 8], input + at, valid);
  }
}

__device__ inline void StoreTile(const MatMulParams& p, const float (&total)[kTiles][4], int row0,
                                 int first) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  GPU_UNROLL
  for (int t = 0; t < kTiles; ++t) {
    GPU_UNROLL
    for (int e = 0; e < 2; ++e) {
      const int row = row0 + t * 8 + lane % 4 * 2 + e;
      if (row >= p.rows) continue;
      if (p.gated) {
        StoreGated(p, row, first / 2 + lane / 4, total[t][e], total[t][e + 2]);
      } else {
        StoreProduct(p, row, first + lane / 4, total[t][e]);
        StoreProduct(p, row, first + lane / 4 + 8, total[t][e + 2]);
      }
    }
  }
}

template <class Chunk>
__global__ void __launch_bounds__(kThreads) MatMulLargeKernel(MatMulParams p) {
  GPU_SHARED(stages, Stage<Chunk::kBlocks>[2]);
  constexpr int kChunkColumns = Chunk::kBlocks * kBlockColumns;
  const DeviceWeights& m = p.weights;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int q = lane % 4, row0 = static_cast<int>(blockIdx.y) * kRows;
  const int first = static_cast<int>(blockIdx.x) * kOutputs + warp * kWarpOutputs;
  const int rows[2] = {min(first + lane / 4, m.rows - 1), min(first + lane / 4 + 8, m.rows - 1)};
  const int chunks = (m.columns + kChunkColumns - 1) / kChunkColumns;
  const int range = (chunks + kColumnRanges - 1) / kColumnRanges;
  Chunk w;
  w.Load(m, rows, 0, q);
  LoadStage(stages[0], p, row0, 0);
  gpu::CpAsyncCommit();

  float total[kTiles][4] = {}, acc[kTiles][4] = {};
  for (int chunk = 0; chunk < chunks; ++chunk) {
    gpu::CpAsyncWait<0>();
    // Everybody's copies of this chunk have landed, and everybody is done with the stage that is
    // loaded next.
    __syncthreads();
    Chunk next = w;
    if (chunk + 1 < chunks) {
      next.Load(m, rows, chunk + 1, q);
      LoadStage(stages[(chunk + 1) % 2], p, row0, chunk + 1);
    }
    gpu::CpAsyncCommit();
    GPU_UNROLL
    for (int b = 0; b < Chunk::kBlocks; ++b) {
      if (chunk * kChunkColumns + b * kBlockColumns >= m.columns) break;
      GPU_UNROLL
      for (int t = 0; t < kTiles; ++t) {
        uint32_t activations[4];
        LoadActivations(activations, stages[chunk % 2].x[b][t * 8 + lane / 4], q);
        AddBlock(acc[t], w, b, activations);
      }
    }
    w = next;
    if ((chunk + 1) % range != 0 && chunk + 1 != chunks) continue;
    GPU_UNROLL
    for (int t = 0; t < kTiles; ++t) {
      GPU_UNROLL
      for (int e = 0; e < 4; ++e) {
        total[t][e] += acc[t][e];
        acc[t][e] = 0;
      }
    }
  }
  StoreTile(p, total, row0, first);
}

}  // namespace

void MatMulLarge(const MatMulParams& params, cudaStream_t stream) {
  VITRINE_CHECK(!params.input.is_f32);
  if (params.rows == 0) return;
  const dim3 grid(static_cast<unsigned>((params.weights.rows + kOutputs - 1) / kOutputs),
                  static_cast<unsigned>((params.rows + kRows - 1) / kRows));
  DispatchChunk(params.weights.format, [&]<class Chunk>() {
    CheckCuda(gpu::Launch(&MatMulLargeKernel<Chunk>,
                          {.grid = grid, .block = dim3(kThreads), .stream = stream}, params));
  });
}

}  // namespace vitrine::cuda
