// Attention rows recomputed in f32, one thread per (item, key). Bound: visible keys * head_dim *
// (2 or 4) bytes per item; neighbouring threads read neighbouring keys.
#include "kernels/cuda/attention_math.h"
#include "kernels/cuda/attention_rows.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/number.h"

namespace vitrine::cuda {
namespace {

constexpr int kThreads = 128;

template <class Kv>
__device__ float RowScore(const AttentionRowsParams<Kv>& p, const AttentionItem& item,
                          const RowPlace& place, size_t at, int key) {
  const int dim = p.kv.head_dim, kv_head = item.head / (p.heads / p.kv.kv_heads);
  const int block = p.batch.block_table[static_cast<size_t>(place.sequence) * p.batch.max_blocks +
                                        key / kKvBlockTokens];
  const float* q = p.q + at * dim;
  const Kv* k = p.kv.data + static_cast<size_t>(item.layer) * p.layer_elements +
                p.kv.KeyOffset(block, kv_head) + key % kKvBlockTokens * dim;
  float dot = 0;
  for (int d = 0; d < dim; ++d) {
    const float query = p.rounds_queries ? ToFloat(__float2bfloat16(q[d])) : q[d];
    dot = __fmaf_rn(query, ToFloat(k[d]), dot);
  }
  const float slope = p.alibi_slopes != nullptr ? p.alibi_slopes[item.head] : 0.0f;
  return Score(p.rule, dot, slope, place.position, key);
}

template <class Kv>
__global__ void __launch_bounds__(kThreads) AttentionRowsKernel(AttentionRowsParams<Kv> p) {
  const AttentionItem item = p.items[blockIdx.x];
  const int key = static_cast<int>(blockIdx.y * kThreads + threadIdx.x);
  if (key >= p.key_columns) return;
  const RowPlace place = PlaceOf(p.batch, item.row);
  const size_t at =
      (static_cast<size_t>(item.layer - p.first_layer) * p.row_capacity + item.row) * p.heads +
      item.head;
  ScoreRule rule = p.rule;
  rule.window = p.windows != nullptr ? p.windows[item.layer] : 0;
  float score = -INFINITY;
  if (Sees(rule, place.position, key)) score = RowScore(p, item, place, at, key);
  p.output[static_cast<size_t>(blockIdx.x) * p.key_columns + key] =
      p.stage == AttentionStage::kScores ? score
      : score == -INFINITY               ? 0.0f
                                         : expf(score - p.log_sum_exp[at]);
}

}  // namespace

template <class Kv>
void AttentionRows(const AttentionRowsParams<Kv>& params, cudaStream_t stream) {
  if (params.item_count == 0 || params.key_columns == 0) return;
  const dim3 grid(static_cast<unsigned>(params.item_count),
                  static_cast<unsigned>((params.key_columns + kThreads - 1) / kThreads));
  CheckCuda(gpu::Launch(&AttentionRowsKernel<Kv>,
                        {.grid = grid, .block = dim3(kThreads), .stream = stream}, params));
}

template void AttentionRows(const AttentionRowsParams<float>&, cudaStream_t);
template void AttentionRows(const AttentionRowsParams<__nv_bfloat16>&, cudaStream_t);

}  // namespace vitrine::cuda
