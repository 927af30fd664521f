// The filter of a row on the device, by one block: what MakeSampleFilter() of sampling_math.h
// gives, bit for bit, without sorting. Top-k, typical and top-p are threshold searches: a radix
// descent of four passes over an integer form of the logits that has their order (typical: that of
// their distance from the mean), with counts or integer weights in a histogram of 256 bins. All
// sums are integers, so the order in which threads add does not matter.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.h"
#include "kernels/sampling_math.h"

namespace vitrine::cuda {

using U64 = unsigned long long;  // The type that CUDA's 64-bit atomics take.

// Threads of a block that works on one row of logits.
inline constexpr int kRowThreads = 512, kRowWarps = kRowThreads / 32;
inline constexpr int kBins = 256, kBinsPerLane = kBins / 32;

struct Logits {
  const float* data;
  int size;
};

// Finds the bin in which the sum from the top bin downwards reaches `target`, and the sum above
// it. Executed by one warp.
struct BinSearch {
  int bin;
  U64 above;
};
__device__ inline void FindBin(const U64 (&bins)[kBins], U64 target, BinSearch& result) {
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

struct Crossing {
  uint32_t key;
  U64 above;  // Sum of the weights of all larger keys.
};

struct ByLogit {
  __device__ uint32_t operator()(float logit) const { return LogitKey(logit); }
};

// The largest key such that the weights of all tokens with that key or a larger one reach
// `target`, which is at least 1 and at most the sum of all. `key_of` orders the logits, `weight`
// maps a logit to an integer.
template <class Key, class Weight>
__device__ Crossing FindCrossing(const Logits& logits, U64 target, Key key_of, Weight weight) {
  GPU_SHARED(bins, U64[kBins]);
  GPU_SHARED(found, BinSearch);
  Crossing crossing{0, 0};
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int b = static_cast<int>(threadIdx.x); b < kBins; b += kRowThreads) bins[b] = 0;
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < logits.size; i += kRowThreads) {
      const uint32_t key = key_of(logits.data[i]);
      const bool in_prefix = shift == 24 || key >> (shift + 8) == crossing.key >> (shift + 8);
      if (in_prefix) atomicAdd(&bins[key >> shift & 0xffu], weight(logits.data[i]));
    }
    __syncthreads();
    if (threadIdx.x < 32) FindBin(bins, target - crossing.above, found);
    __syncthreads();
    crossing.key |= static_cast<uint32_t>(found.bin) << shift;
    crossing.above += found.above;
  }
  __syncthreads();  // Before the next search reuses the shared arrays.
  return crossing;
}

template <class Weight>
__device__ U64 Total(const Logits& logits, Weight weight, U64 (&scratch)[kRowWarps]) {
  U64 sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < logits.size; i += kRowThreads) {
    sum += weight(logits.data[i], i);
  }
  return gpu::BlockSum<kRowThreads>(sum, scratch);
}

// The lowest id of the largest logit, or kNoToken, as ArgMax() of sampling_math.h.
__device__ inline int FindLargest(const Logits& logits, U64 (&scratch)[kRowWarps]) {
  U64 best = 0;
  for (int i = static_cast<int>(threadIdx.x); i < logits.size; i += kRowThreads) {
    const float x = logits.data[i];
    const uint32_t key = IsNan(x) ? ~0u : LogitKey(x);
    const U64 candidate = static_cast<U64>(key) << 32 | ~static_cast<uint32_t>(i);
    best = candidate > best ? candidate : best;
  }
  best = gpu::BlockMax<kRowThreads>(best, scratch);
  const auto key = static_cast<uint32_t>(best >> 32);
  const bool usable = key > kNegativeInfinityKey && key < kInfinityKey;
  return usable ? static_cast<int>(~static_cast<uint32_t>(best)) : kNoToken;
}

// The first id at which the running sum of weights, in order of ids, exceeds `target`, which is
// below the total. Warps own contiguous parts of the vocabulary.
template <class Weight>
__device__ int FindRunningSum(const Logits& logits, U64 target, Weight weight) {
  GPU_SHARED(warp_sums, U64[kRowWarps]);
  GPU_SHARED(token, int);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int part = (logits.size + kRowThreads - 1) / kRowThreads * 32;
  const int begin = warp * part, end = min(begin + part, logits.size);
  const auto at = [&](int i) { return i < end ? U64{weight(logits.data[i], i)} : U64{0}; };
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
  const int result = token;
  __syncthreads();  // Before the next call reuses the shared arrays.
  return result;
}

// The sum over the block of sums that need more than 64 bits, one part of 32 bits after the other.
__device__ inline WideSum BlockWideSum(WideSum own, U64 (&scratch)[kRowWarps]) {
  WideSum sum = 0;
  for (int shift = 0; shift < 128; shift += 32) {
    const U64 part = static_cast<U64>(own >> shift) & 0xffffffffu;
    sum += WideSum{gpu::BlockSum<kRowThreads>(part, scratch)} << shift;
  }
  return sum;
}

__device__ inline void ApplyTypical(const Logits& logits, float typical_p, SampleFilter& filter,
                                    U64 (&scratch)[kRowWarps]) {
  const auto mass = [&](float logit) { return U64{filter.Weight(logit, 0)}; };
  WideSum depths = 0;
  for (int i = static_cast<int>(threadIdx.x); i < logits.size; i += kRowThreads) {
    const U64 weight = mass(logits.data[i]);
    if (weight == 0) continue;
    depths += WideSum{weight} * SampleDepth(logits.data[i], filter.top, filter.temperature);
  }
  depths = BlockWideSum(depths, scratch);
  const U64 total = Total(logits, [&](float logit, int) { return mass(logit); }, scratch);
  filter.mean_depth = static_cast<uint32_t>(depths / total);
  const auto nearness = [&](float logit) {
    return mass(logit) > 0 ? ~filter.DistanceFromMean(logit) : 0u;
  };
  filter.typical_distance = ~FindCrossing(logits, TopPMass(typical_p, total), nearness, mass).key;
  filter.is_typical = true;
}

__device__ inline void ApplyTopP(const Logits& logits, float top_p, SampleFilter& filter,
                                 U64 (&scratch)[kRowWarps]) {
  const auto mass = [&](float logit) { return U64{filter.Weight(logit, 0)}; };
  const U64 total = Total(logits, [&](float logit, int) { return mass(logit); }, scratch);
  const U64 target = TopPMass(top_p, total);
  const Crossing crossing = FindCrossing(logits, target, ByLogit(), mass);
  // All tokens of the crossing key weigh the same: as many stay as reach the target.
  const auto is_tied = [&](float logit, int) { return U64{LogitKey(logit) == crossing.key}; };
  const int first_tied = FindRunningSum(logits, 0, is_tied);
  const U64 weight = SampleWeight(logits.data[first_tied], filter.top, filter.temperature);
  const U64 needed = (target - crossing.above + weight - 1) / weight;
  filter.least_key = crossing.key;
  filter.last_tied_id = FindRunningSum(logits, needed - 1, is_tied);
}

// Of what the filter keeps: less than kTopWeight only where typical dropped the most likely token.
__device__ inline U64 LargestWeight(const Logits& logits, const SampleFilter& filter,
                                    U64 (&scratch)[kRowWarps]) {
  if (!filter.is_typical) return kTopWeight;
  U64 largest = 0;
  for (int i = static_cast<int>(threadIdx.x); i < logits.size; i += kRowThreads) {
    const U64 weight = filter.Weight(logits.data[i], i);
    largest = weight > largest ? weight : largest;
  }
  return gpu::BlockMax<kRowThreads>(largest, scratch);
}

// The filter of a row that is not greedy and whose largest logit is `top`.
__device__ inline SampleFilter MakeFilter(const Logits& logits, float top, const SampleRow& row,
                                          U64 (&scratch)[kRowWarps]) {
  SampleFilter filter;
  filter.top = top;
  filter.temperature = row.temperature;
  if (row.top_k > 0 && row.top_k < logits.size) {
    const auto one = [](float) { return U64{1}; };
    filter.least_key = FindCrossing(logits, static_cast<U64>(row.top_k), ByLogit(), one).key;
  }
  if (row.typical_p < 1.0f) ApplyTypical(logits, row.typical_p, filter, scratch);
  if (row.top_p < 1.0f) ApplyTopP(logits, row.top_p, filter, scratch);
  if (row.min_p > 0.0f) {
    filter.least_weight = MinPWeight(row.min_p, LargestWeight(logits, filter, scratch));
  }
  return filter;
}

}  // namespace vitrine::cuda
