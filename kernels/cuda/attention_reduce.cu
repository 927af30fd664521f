// Reductions of attention rows, one block per row; the top-k by as many passes. All sums are f64
// and in an order that depends on the row's length alone. Bound: (members + 2 + top_k) * columns *
// 4 bytes per row, from L2 after the first pass.
#include "kernels/cuda/attention_reduce.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/sampling_math.h"

namespace vitrine::cuda {
namespace {

using Params = AttentionReduceParams;
using U64 = unsigned long long;

constexpr int kThreads = 128, kWarps = kThreads / 32;

// The row's reductions share this.
struct Scratch {
  double sums[kWarps];
  U64 largest[kWarps];
};

__device__ inline int FirstOf(int begin) { return begin + static_cast<int>(threadIdx.x); }

// Orders by number, then by lower key. Above 0 for every number.
__device__ inline U64 Rank(float value, int key) {
  return static_cast<U64>(LogitKey(value)) << 32 | ~static_cast<uint32_t>(key);
}
__device__ inline int KeyOf(U64 rank) { return static_cast<int>(~static_cast<uint32_t>(rank)); }

__device__ inline float CombineMembers(const Params& p, const float* first, size_t stride) {
  double sum = 0;
  float largest = first[0];
  for (int m = 0; m < p.members; ++m) {
    const float value = first[m * stride];
    sum += static_cast<double>(value);
    largest = fmaxf(largest, value);
  }
  return p.combine == AttentionCombine::kMax ? largest : static_cast<float>(sum / p.members);
}

__device__ inline void WriteStats(const Params& p, const float* row, const AttentionRowKeys& keys,
                                  Scratch& scratch) {
  double entropy = 0, distance = 0;
  U64 best = 0;
  for (int key = FirstOf(keys.first_key); key <= keys.position; key += kThreads) {
    const double weight = static_cast<double>(row[key]);
    if (weight > 0) entropy -= weight * log(weight);
    distance += weight * (keys.position - key);
    best = max(best, Rank(row[key], key));
  }
  entropy = gpu::BlockSum<kThreads>(entropy, scratch.sums);
  distance = gpu::BlockSum<kThreads>(distance, scratch.sums);
  best = gpu::BlockMax<kThreads>(best, scratch.largest);
  if (threadIdx.x != 0) return;
  const float* log_sum_exp = p.log_sum_exp + static_cast<size_t>(blockIdx.x) * p.members;
  float* stats = p.stats + static_cast<size_t>(blockIdx.x) * kAttentionStats;
  stats[0] = CombineMembers(p, log_sum_exp, 1);
  stats[1] = static_cast<float>(entropy);
  stats[2] = row[KeyOf(best)];
  stats[3] = static_cast<float>(KeyOf(best));
  stats[4] = row[keys.position];
  stats[5] = row[0];
  stats[6] = static_cast<float>(distance);
  stats[7] = static_cast<float>(keys.position - keys.first_key + 1);
}

__device__ inline bool Competes(const Params& p, const AttentionRowKeys& keys, int key) {
  if (key < keys.first_key || key > keys.position) return false;
  for (int i = 0; i < p.top_range_count; ++i) {
    if (key >= p.top_ranges[i].begin && key < p.top_ranges[i].end) return true;
  }
  return p.top_range_count == 0;
}

__device__ inline void WriteTopK(const Params& p, const float* row, const AttentionRowKeys& keys,
                                 Scratch& scratch) {
  U64 last = ~U64{0};
  for (int i = 0; i < p.top_k; ++i) {
    U64 next = 0;
    for (int key = FirstOf(keys.first_key); key <= keys.position; key += kThreads) {
      const U64 rank = Rank(row[key], key);
      if (rank < last && rank > next && Competes(p, keys, key)) next = rank;
    }
    last = gpu::BlockMax<kThreads>(next, scratch.largest);
    if (threadIdx.x != 0) continue;
    const size_t place = static_cast<size_t>(blockIdx.x) * p.top_k + i;
    p.top_keys[place] = last == 0 ? kNoKey : static_cast<uint32_t>(KeyOf(last));
    p.top_values[place] = last == 0 ? 0.0f : row[KeyOf(last)];
  }
  if (p.tail_mass == nullptr) return;
  double tail = 0;  // Taken are the competing keys from rank `last` on; with last = 0, all of them.
  for (int key = FirstOf(0); key < p.key_columns; key += kThreads) {
    const bool taken = Competes(p, keys, key) && Rank(row[key], key) >= last;
    if (!taken) tail += static_cast<double>(row[key]);
  }
  tail = gpu::BlockSum<kThreads>(tail, scratch.sums);
  if (threadIdx.x == 0) p.tail_mass[blockIdx.x] = static_cast<float>(tail);
}

__device__ inline void WriteSpans(const Params& p, const float* row) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int s = warp; s < p.spans; s += kWarps) {
    double mass = 0;
    for (int i = p.span_begin[s]; i < p.span_begin[s + 1]; ++i) {
      const int end = min(p.span_ranges[i].end, p.key_columns);
      for (int key = p.span_ranges[i].begin + lane; key < end; key += 32) {
        mass += static_cast<double>(row[key]);
      }
    }
    mass = gpu::WarpSum(mass);
    if (lane == 0) {
      p.span_mass[static_cast<size_t>(blockIdx.x) * p.spans + s] = static_cast<float>(mass);
    }
  }
}

__global__ void __launch_bounds__(kThreads) AttentionReduceKernel(Params p) {
  GPU_SHARED(scratch, Scratch);
  const size_t columns = static_cast<size_t>(p.key_columns);
  const float* input = p.input + blockIdx.x * columns * p.members;
  float* row = p.combined + blockIdx.x * columns;
  const AttentionRowKeys keys = p.rows[blockIdx.x];
  for (int c = FirstOf(0); c < p.key_columns; c += kThreads) {
    row[c] = CombineMembers(p, input + c, columns);
  }
  __syncthreads();
  if (p.stats != nullptr) WriteStats(p, row, keys, scratch);
  if (p.top_keys != nullptr) WriteTopK(p, row, keys, scratch);
  if (p.span_mass != nullptr) WriteSpans(p, row);
}

}  // namespace

void AttentionReduceParams::Skip(int skipped) {
  const auto skip = [skipped](auto*& pointer, int columns) {
    if (pointer != nullptr) pointer += static_cast<size_t>(skipped) * columns;
  };
  skip(input, members * key_columns);
  skip(rows, 1);
  skip(log_sum_exp, members);
  skip(stats, kAttentionStats);
  skip(top_keys, top_k);
  skip(top_values, top_k);
  skip(tail_mass, 1);
  skip(span_mass, spans);
}

void AttentionReduce(const AttentionReduceParams& params, cudaStream_t stream) {
  if (params.count == 0) return;
  CheckCuda(gpu::Launch(&AttentionReduceKernel,
                        {.grid = dim3(static_cast<unsigned>(params.count)),
                         .block = dim3(kThreads),
                         .stream = stream},
                        params));
}

}  // namespace vitrine::cuda
