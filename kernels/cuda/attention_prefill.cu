// Flash attention for prompts. Grid (tiles of 64 query rows, heads, sequences); 4 warps of 16 rows
// share tiles of 64 keys, double-buffered with cp.async. Bound: 4 * rows * visible keys * head_dim
// flops per head; mma.sync ends near a third of the bf16 peak of an H200.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/launch.h"

namespace vitrine::cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * 32, kRows = kWarps * kTileRows;

// The query rows of the calling block.
struct Chunk {
  int sequence;
  int row0;      // First row of the sequence within the batch.
  int rows;      // Rows of the sequence.
  int position;  // Of row0.
  int first;     // First row of the block, within the sequence.
};

__device__ inline QueryRows RowsOfWarp(const MatrixAttentionParams& p, const Chunk& c, int dim) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int head = static_cast<int>(blockIdx.y);
  QueryRows rows;
  GPU_UNROLL
  for (int h = 0; h < 2; ++h) {
    const int row = c.first + warp * kTileRows + lane / 4 + h * 8;
    const size_t at = static_cast<size_t>(c.row0 + row) * p.heads + head;
    rows.q[h] = row < c.rows ? p.q + at * dim : nullptr;
    rows.position[h] = c.position + row;
    rows.slope[h] = p.alibi_slopes != nullptr ? p.alibi_slopes[head] : 0.0f;
  }
  return rows;
}

template <int kDim>
__device__ void WriteRow(const MatrixAttentionParams& p, const Chunk& c, int h,
                         PartialSoftmax softmax, const float (&values)[kDim / 8][4]) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int head = static_cast<int>(blockIdx.y);
  const int row = c.first + warp * kTileRows + lane / 4 + h * 8;
  if (row >= c.rows) return;
  PartialSoftmax::Factors f{1.0f, 0.0f};
  if (p.sinks != nullptr) f = softmax.Merge({p.sinks[head], 1.0f});
  GPU_UNROLL
  for (int n = 0; n < kDim / 8; ++n) {
    GPU_UNROLL
    for (int e = 0; e < 2; ++e) {
      p.output.Store(c.row0 + row, head * kDim + n * 8 + lane % 4 * 2 + e,
                     Combine(f, values[n][2 * h + e], 0.0f) / softmax.sum);
    }
  }
  if (p.log_sum_exp != nullptr && lane % 4 == 0) {
    p.log_sum_exp[static_cast<size_t>(c.row0 + row) * p.heads + head] = softmax.LogSumExp();
  }
}

template <int kDim>
__global__ void __launch_bounds__(kThreads) PrefillKernel(MatrixAttentionParams p) {
  GPU_DYNAMIC_SHARED(raw);
  auto* tiles = reinterpret_cast<KeyTile<kDim>*>(raw);
  const int sequence = p.sequences[blockIdx.z], thread = static_cast<int>(threadIdx.x);
  const int row0 = p.batch.row_begin[sequence];
  const Chunk c{sequence, row0, p.batch.row_begin[sequence + 1] - row0,
                p.batch.first_position[sequence], static_cast<int>(blockIdx.x) * kRows};
  if (c.first >= c.rows) return;
  const int kv_head = static_cast<int>(blockIdx.y) / (p.heads / p.kv.kv_heads);
  const int context = c.position + c.rows;
  const int last_row = min(c.first + kRows, c.rows) - 1;
  const int first_tile = FirstKey(p.rule, c.position + c.first) / kTileKeys;
  const int last_tile = (c.position + last_row) / kTileKeys;
  const auto load = [&](int tile) {
    LoadTile<kDim>(tiles[tile % 2], p, sequence, kv_head, tile, context, thread, kThreads);
  };
  load(first_tile);
  gpu::CpAsyncCommit();

  const QueryRows rows = RowsOfWarp(p, c, kDim);
  uint32_t a[kDim / 16][4];
  LoadQueries<kDim>(a, rows);
  PartialSoftmax softmax[2];
  float values[kDim / 8][4] = {};
  for (int tile = first_tile; tile <= last_tile; ++tile) {
    if (tile < last_tile) load(tile + 1);
    gpu::CpAsyncCommit();  // Possibly empty, so that the count below always fits.
    gpu::CpAsyncWait<1>();
    __syncthreads();
    const auto result = AttendTile<kDim>(tiles[tile % 2], a, p.rule, rows, tile * kTileKeys);
    GPU_UNROLL
    for (int h = 0; h < 2; ++h) {
      const PartialSoftmax::Factors f = softmax[h].Merge(result.softmax[h]);
      GPU_UNROLL
      for (int n = 0; n < kDim / 8; ++n) {
        GPU_UNROLL
        for (int e = 2 * h; e < 2 * h + 2; ++e) {
          values[n][e] = Combine(f, values[n][e], result.values[n][e]);
        }
      }
    }
    __syncthreads();  // Before this buffer is loaded again.
  }
  GPU_UNROLL
  for (int h = 0; h < 2; ++h) WriteRow<kDim>(p, c, h, softmax[h], values);
}

}  // namespace

bool HasMatrixAttention(int head_dim) {
  return DispatchHeadDim(head_dim, [&]<int kDim>() { VITRINE_CHECK_EQ(head_dim, kDim); });
}

void PrefillAttention(const MatrixAttentionParams& p, cudaStream_t stream) {
  if (p.sequence_count == 0) return;
  const dim3 grid(static_cast<unsigned>((p.max_rows + kRows - 1) / kRows),
                  static_cast<unsigned>(p.heads), static_cast<unsigned>(p.sequence_count));
  const bool known = DispatchHeadDim(p.kv.head_dim, [&]<int kDim>() {
    constexpr size_t kShared = 2 * sizeof(KeyTile<kDim>);
    CheckCuda(gpu::AllowDynamicShared(&PrefillKernel<kDim>, kShared));
    CheckCuda(gpu::Launch(&PrefillKernel<kDim>, {grid, dim3(kThreads), kShared, stream}, p));
  });
  VITRINE_CHECK(known);
}

}  // namespace vitrine::cuda
