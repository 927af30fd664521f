// Attention of any head size without matrix instructions. One warp per (head, row); its lanes take
// the keys of a tile for the scores, then the dimensions for the values. Keys are read once
// per query head and row: bound by L2, not meant for long prompts.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_math.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/number.h"
#include "kernels/cuda/reduce.h"

namespace vitrine::cuda {
namespace {

constexpr int kThreads = 32;
constexpr int kDimsPerThread = kMaxScalarHeadDim / kThreads;

template <class Kv>
__global__ void __launch_bounds__(kThreads) ScalarAttentionKernel(AttentionParams<Kv> p) {
  GPU_SHARED(query, float[kMaxScalarHeadDim]);
  GPU_SHARED(weights, float[kThreads]);
  const int head = static_cast<int>(blockIdx.x), row = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x), dim = p.kv.head_dim;
  const RowPlace place = PlaceOf(p.batch, row);
  const int kv_head = head / (p.heads / p.kv.kv_heads);
  const int32_t* blocks =
      p.batch.block_table + static_cast<size_t>(place.sequence) * p.batch.max_blocks;
  const float slope = p.alibi_slopes != nullptr ? p.alibi_slopes[head] : 0.0f;
  const size_t at = static_cast<size_t>(row) * p.heads + head;
  for (int d = thread; d < dim; d += kThreads) query[d] = p.q[at * dim + d];
  __syncwarp();

  const auto key_at = [&](int key) {
    return p.kv.data + p.kv.KeyOffset(blocks[key / kKvBlockTokens], kv_head) +
           key % kKvBlockTokens * dim;
  };
  PartialSoftmax softmax;
  float values[kDimsPerThread] = {};
  const int first_tile = FirstKey(p.rule, place.position) / kThreads;
  for (int tile = first_tile; tile <= place.position / kThreads; ++tile) {
    const int key = tile * kThreads + thread;
    float score = -INFINITY;
    if (Sees(p.rule, place.position, key)) {
      const Kv* k = key_at(key);
      float dot = 0;
      for (int d = 0; d < dim; ++d) dot = __fmaf_rn(query[d], ToFloat(k[d]), dot);
      score = Score(p.rule, dot, slope, place.position, key);
    }
    PartialSoftmax part;
    part.top = gpu::WarpMax(score);
    weights[thread] = expf(score - part.top);
    part.sum = gpu::WarpSum(weights[thread]);
    __syncwarp();
    const PartialSoftmax::Factors f = softmax.Merge(part);
    const int begin = max(tile * kThreads, FirstKey(p.rule, place.position));
    const int end = min((tile + 1) * kThreads, place.position + 1);
    for (int i = 0; i < kDimsPerThread; ++i) {
      const int d = thread + i * kThreads;
      if (d >= dim) break;
      float sum = 0;
      for (int j = begin; j < end; ++j) {
        sum = __fmaf_rn(weights[j - tile * kThreads], ToFloat(key_at(j)[p.kv.ValueOffset() + d]),
                        sum);
      }
      values[i] = Combine(f, values[i], sum);
    }
    __syncwarp();  // Before `weights` holds the next tile.
  }
  if (p.sinks != nullptr) {
    const PartialSoftmax::Factors f = softmax.Merge({p.sinks[head], 1.0f});
    for (float& value : values) value = Combine(f, value, 0.0f);
  }
  for (int i = 0; i < kDimsPerThread; ++i) {
    const int d = thread + i * kThreads;
    if (d < dim) p.output.Store(row, head * dim + d, values[i] / softmax.sum);
  }
  if (p.log_sum_exp != nullptr && thread == 0) p.log_sum_exp[at] = softmax.LogSumExp();
}

}  // namespace

template <class Kv>
void ScalarAttention(const AttentionParams<Kv>& params, cudaStream_t stream) {
  VITRINE_CHECK_LE(params.kv.head_dim, kMaxScalarHeadDim);
  if (params.batch.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(params.heads), static_cast<unsigned>(params.batch.rows));
  CheckCuda(gpu::Launch(&ScalarAttentionKernel<Kv>,
                        {.grid = grid, .block = dim3(kThreads), .stream = stream}, params));
}

template void ScalarAttention(const AttentionParams<float>&, cudaStream_t);
template void ScalarAttention(const AttentionParams<__nv_bfloat16>&, cudaStream_t);

}  // namespace vitrine::cuda
