// What a block does in a pass over its part of a row, and what the last one makes of all parts.
// Top-k, typical and top-p are threshold searches without sorting: a radix descent of four passes
// over an integer form of the logits that has their order (typical: that of their distance from the
// mean), with counts or integer weights in a histogram of 256 bins. All sums are integers, so
// neither the order in which threads add nor the cut into parts matters.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/sample.h"

namespace vitrine::cuda {

inline constexpr int kBinsPerLane = kBins / 32, kTopShift = 24;

using Bins = U64[kBins];
using Scratch = U64[kRowWarps];

// Tokens [begin, end) of a row.
struct RowPart {
  const float* logits = nullptr;
  int begin = 0, end = 0;

  template <class Body>
  __device__ void ForEach(Body body) const {
    for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kRowThreads) {
      body(logits[i], i);
    }
  }
  template <class Weight>
  __device__ U64 Sum(Weight weight, Scratch& scratch) const {
    U64 sum = 0;
    ForEach([&](float logit, int id) { sum += weight(logit, id); });
    return gpu::BlockSum<kRowThreads>(sum, scratch);
  }
  template <class Value>
  __device__ U64 Max(Value value, Scratch& scratch) const {
    U64 largest = 0;
    ForEach([&](float logit, int id) {
      const U64 one = value(logit, id);
      largest = one > largest ? one : largest;
    });
    return gpu::BlockMax<kRowThreads>(largest, scratch);
  }
};

// The logits that a row is drawn from; `row`: of `logits`, where it has no adjusted one.
__device__ inline const float* SourceOf(const float* logits, const float* adjusted, int row,
                                        const SampleRow& sampling, int vocabulary) {
  const bool is_adjusted = sampling.adjusted_row >= 0;
  const auto source = static_cast<size_t>(is_adjusted ? sampling.adjusted_row : row);
  return (is_adjusted ? adjusted : logits) + source * vocabulary;
}

// Larger for the larger logit; of equal ones, for the lower id.
__device__ inline U64 OrderOf(float logit, int id) {
  const uint32_t key = IsNan(logit) ? ~0u : LogitKey(logit);
  return static_cast<U64>(key) << 32 | ~static_cast<uint32_t>(id);
}

// The token of the largest order, or kNoToken, as ArgMax() of sampling_math.h.
__device__ inline int TokenOf(U64 order) {
  const auto key = static_cast<uint32_t>(order >> 32);
  const bool is_usable = key > kNegativeInfinityKey && key < kInfinityKey;
  return is_usable ? static_cast<int>(~static_cast<uint32_t>(order)) : kNoToken;
}

// The logit whose LogitKey is `key`.
__device__ inline float LogitOf(uint32_t key) {
  return __uint_as_float((key >> 31) != 0 ? key & 0x7fffffffu : ~key);
}

// Adds the part's histogram of the next digit of keys to that of the row. `key_of` orders the
// logits, `weight` maps a logit to an integer.
template <class Key, class Weight>
__device__ void AddToBins(const RowPart& part, RowSearch& search, Bins& bins, Key key_of,
                          Weight weight) {
  const int thread = static_cast<int>(threadIdx.x), shift = search.shift;
  const uint32_t prefix = search.key;
  if (thread < kBins) bins[thread] = 0;
  __syncthreads();
  part.ForEach([&](float logit, int) {
    const uint32_t key = key_of(logit);
    const bool is_below = shift == kTopShift || key >> (shift + 8) == prefix >> (shift + 8);
    if (is_below) atomicAdd(&bins[key >> shift & 0xffu], weight(logit));
  });
  __syncthreads();
  if (thread < kBins && bins[thread] != 0) atomicAdd(&search.bins[thread], bins[thread]);
}

// The bin in which the sum from the top bin downwards reaches `target`, and the sum above it.
// Executed by one warp.
struct BinSearch {
  int bin;
  U64 above;
};
__device__ inline void FindBin(const Bins& bins, U64 target, BinSearch& result) {
  // Lane i takes the i-th group of bins from the top.
  const int lane = static_cast<int>(threadIdx.x) % 32, top = kBins - 1 - lane * kBinsPerLane;
  U64 own = 0;
  for (int b = 0; b < kBinsPerLane; ++b) own += bins[top - b];
  const U64 reached = gpu::WarpInclusiveSum(own);
  U64 above = reached - own;
  if (above >= target || reached < target) return;  // Exactly one lane goes on.
  int bin = top;
  while (above + bins[bin] < target) above += bins[bin--];
  result = {bin, above};
}

// One digit of the largest key such that the weights of all tokens with that key or a larger one
// reach the target, which is at least 1 and at most the sum of all.
struct Crossing {
  uint32_t key;
  U64 above;   // Sum of the weights of all larger keys.
  U64 at_key;  // Of this one.
  bool is_found;
};
__device__ inline Crossing Descend(RowSearch& search, U64 target, const Bins& bins) {
  GPU_SHARED(found, BinSearch);
  const int shift = search.shift;
  Crossing crossing{search.key, search.above, 0, shift == 0};
  if (threadIdx.x < 32) FindBin(bins, target - crossing.above, found);
  __syncthreads();
  crossing.key |= static_cast<uint32_t>(found.bin) << shift;
  crossing.above += found.above;
  crossing.at_key = bins[found.bin];
  if (threadIdx.x == 0) {
    search.key = crossing.key;
    search.above = crossing.above;
    search.shift = shift - 8;
    search.target = target;
  }
  return crossing;
}

// The first id at which the running sum of weights, in order of ids, exceeds `target`, which is
// below the part's total. Warps own contiguous pieces.
template <class Weight>
__device__ int FindRunningSum(const RowPart& part, U64 target, Weight weight) {
  GPU_SHARED(warp_sums, U64[kRowWarps]);
  GPU_SHARED(token, int);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int piece = (part.end - part.begin + kRowThreads - 1) / kRowThreads * 32;
  const int begin = part.begin + warp * piece, end = min(begin + piece, part.end);
  const auto at = [&](int i) { return i < end ? U64{weight(part.logits[i], i)} : U64{0}; };
  U64 own = 0;
  for (int i = begin + lane; i < end; i += 32) own += at(i);
  own = gpu::WarpSum(own);
  if (lane == 0) warp_sums[warp] = own;
  __syncthreads();
  U64 before = 0;
  for (int w = 0; w < warp; ++w) before += warp_sums[w];
  const bool is_here = before <= target && target < before + own;  // In exactly one warp.
  for (int i = begin; is_here && i < end; i += 32) {
    const U64 running = before + gpu::WarpInclusiveSum(at(i + lane));
    const bool exceeds = running > target;
    if (exceeds && running - at(i + lane) <= target) token = i + lane;
    before = gpu::WarpMax(running);
    if (before > target) break;
  }
  __syncthreads();
  return token;
}

// A sum over the block that needs more than 64 bits, one piece of 32 bits after the other.
__device__ inline WideSum BlockWideSum(WideSum own, Scratch& scratch) {
  WideSum sum = 0;
  for (int shift = 0; shift < 128; shift += 32) {
    const U64 piece = static_cast<U64>(own >> shift) & 0xffffffffu;
    sum += WideSum{gpu::BlockSum<kRowThreads>(piece, scratch)} << shift;
  }
  return sum;
}

}  // namespace vitrine::cuda
