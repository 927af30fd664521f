// Flash-decoding over paged keys on matrix instructions. Grid (segments of kSegmentTiles tiles, KV
// heads x groups of 16 query heads, sequences); the query heads of a KV head are the rows of one
// operand, so keys and values are read once for all of them. Each warp attends one tile; warps
// never wait for each other before the merge. Bound: context * kv_heads * head_dim * 4 bytes per
// sequence at copy bandwidth.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/launch.h"

namespace vitrine::cuda {
namespace {

constexpr int kSegmentTiles = 2, kThreads = kSegmentTiles * 32;

// A tile's result for one query head, unmerged.
template <int kDim>
struct TileState {
  float values[kDim];
  PartialSoftmax softmax;
};

template <int kDim>
struct DecodeShared {
  union {
    KeyTile<kDim> tiles[kSegmentTiles];
    TileState<kDim> states[kTileRows][kSegmentTiles];
  };
};

// Which tiles the row of one sequence sees.
struct TileRange {
  int first, last;
  __device__ TileRange(const MatrixAttentionParams& p, int position)
      : first(FirstKey(p.rule, position) / kTileKeys), last(position / kTileKeys) {}
  // Such a sequence needs no second kernel.
  __device__ bool IsOneSegment() const { return first / kSegmentTiles == last / kSegmentTiles; }
};

// Merges `count` tiles, `stride` states apart, in ascending order and writes dimension `d` of the
// row's output.
template <int kDim>
__device__ void MergeTiles(const MatrixAttentionParams& p, const TileState<kDim>* states,
                           int stride, int count, int row, int head, int d) {
  PartialSoftmax softmax;
  float value = 0;
  for (int i = 0; i < count; ++i) {
    const TileState<kDim>& state = states[static_cast<size_t>(i) * stride];
    const PartialSoftmax::Factors f = softmax.Merge(state.softmax);
    value = Combine(f, value, state.values[d]);
  }
  if (p.sinks != nullptr) {
    const PartialSoftmax::Factors f = softmax.Merge({p.sinks[head], 1.0f});
    value = Combine(f, value, 0.0f);
  }
  p.output.Store(row, head * kDim + d, value / softmax.sum);
  if (p.log_sum_exp != nullptr && d == 0) {
    p.log_sum_exp[static_cast<size_t>(row) * p.heads + head] = softmax.LogSumExp();
  }
}

// Where the state of (sequence of the launch, head, tile) lies in the workspace; the next tile's
// is p.heads further.
template <int kDim>
__device__ TileState<kDim>* WorkspaceState(const MatrixAttentionParams& p, int index, int head,
                                           int tile) {
  return reinterpret_cast<TileState<kDim>*>(p.workspace) +
         static_cast<size_t>(p.tile_begin[index] + tile) * p.heads + head;
}

template <int kDim>
__device__ void StoreState(TileState<kDim>& state, const TileResult<kDim>& result, int h) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane % 4 == 0) state.softmax = result.softmax[h];
  GPU_UNROLL
  for (int n = 0; n < kDim / 8; ++n) {
    state.values[n * 8 + lane % 4 * 2] = result.values[n][2 * h];
    state.values[n * 8 + lane % 4 * 2 + 1] = result.values[n][2 * h + 1];
  }
}

template <int kDim>
__global__ void __launch_bounds__(kThreads) DecodeKernel(MatrixAttentionParams p) {
  GPU_DYNAMIC_SHARED(raw);
  auto& s = *reinterpret_cast<DecodeShared<kDim>*>(raw);
  const int sequence = p.sequences[blockIdx.z], row = p.batch.row_begin[sequence];
  const int position = p.batch.first_position[sequence];
  const TileRange range(p, position);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int segment = static_cast<int>(blockIdx.x), tile = segment * kSegmentTiles + warp;
  if (segment < range.first / kSegmentTiles || segment > range.last / kSegmentTiles) return;

  const int group = p.heads / p.kv.kv_heads;
  const int row_groups = (group + kTileRows - 1) / kTileRows;
  const int kv_head = static_cast<int>(blockIdx.y) / row_groups;
  const int first_in_group = static_cast<int>(blockIdx.y) % row_groups * kTileRows;
  const int head0 = kv_head * group + first_in_group;
  const int heads = min(group - first_in_group, kTileRows);
  const bool used = tile >= range.first && tile <= range.last;
  if (used) {
    LoadTile<kDim>(s.tiles[warp], p, sequence, kv_head, tile, position + 1, lane, 32);
  }
  gpu::CpAsyncCommit();
  QueryRows rows;
  GPU_UNROLL
  for (int h = 0; h < 2; ++h) {
    const int head = head0 + lane / 4 + h * 8;
    const bool valid = lane / 4 + h * 8 < heads;
    rows.q[h] = valid ? p.q + (static_cast<size_t>(row) * p.heads + head) * kDim : nullptr;
    rows.position[h] = position;
    rows.slope[h] = valid && p.alibi_slopes != nullptr ? p.alibi_slopes[head] : 0.0f;
  }
  uint32_t a[kDim / 16][4];
  LoadQueries<kDim>(a, rows);
  gpu::CpAsyncWait<0>();
  __syncwarp();  // The lanes' copies become visible to the warp.
  TileResult<kDim> result;
  if (used) result = AttendTile<kDim>(s.tiles[warp], a, p.rule, rows, tile * kTileKeys);

  const bool finish = range.IsOneSegment();
  __syncthreads();  // States take the place of the tiles.
  GPU_UNROLL
  for (int h = 0; h < 2; ++h) {
    const int r = lane / 4 + h * 8;
    if (!used || r >= heads) continue;
    StoreState(finish ? s.states[r][warp]
                      : *WorkspaceState<kDim>(p, static_cast<int>(blockIdx.z), head0 + r, tile),
               result, h);
  }
  if (!finish) return;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < heads * kDim; i += kThreads) {
    MergeTiles<kDim>(p, &s.states[i / kDim][range.first % kSegmentTiles], 1,
                     range.last - range.first + 1, row, head0 + i / kDim, i % kDim);
  }
}

// One block of head_dim threads per (head, sequence).
template <int kDim>
__global__ void __launch_bounds__(kDim) MergeTilesKernel(MatrixAttentionParams p) {
  const int head = static_cast<int>(blockIdx.x), index = static_cast<int>(blockIdx.y);
  const int sequence = p.sequences[index];
  const TileRange range(p, p.batch.first_position[sequence]);
  if (range.IsOneSegment()) return;
  MergeTiles<kDim>(p, WorkspaceState<kDim>(p, index, head, range.first), p.heads,
                   range.last - range.first + 1, p.batch.row_begin[sequence], head,
                   static_cast<int>(threadIdx.x));
}

}  // namespace

void DecodeAttention(const MatrixAttentionParams& p, cudaStream_t stream) {
  if (p.sequence_count == 0) return;
  const int segments = (TilesFor(p.max_context) + kSegmentTiles - 1) / kSegmentTiles;
  const int row_groups = (p.heads / p.kv.kv_heads + kTileRows - 1) / kTileRows;
  const dim3 grid(static_cast<unsigned>(segments),
                  static_cast<unsigned>(p.kv.kv_heads * row_groups),
                  static_cast<unsigned>(p.sequence_count));
  const dim3 merge_grid(static_cast<unsigned>(p.heads), static_cast<unsigned>(p.sequence_count));
  const bool known = DispatchHeadDim(p.kv.head_dim, [&]<int kDim>() {
    constexpr size_t kShared = sizeof(DecodeShared<kDim>);
    CheckCuda(gpu::AllowDynamicShared(&DecodeKernel<kDim>, kShared));
    CheckCuda(gpu::Launch(&DecodeKernel<kDim>, {grid, dim3(kThreads), kShared, stream}, p));
    if (segments == 1) return;
    CheckCuda(gpu::Launch(&MergeTilesKernel<kDim>, {merge_grid, dim3(kDim), 0, stream}, p));
  });
  VITRINE_CHECK(known);
}

}  // namespace vitrine::cuda
