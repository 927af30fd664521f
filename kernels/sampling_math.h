// The arithmetic of AdjustLogits, Sample and Logprobs, shared by all backends so that they draw the
// same token bit for bit.
//
// The most likely token of a row weighs 2^40; every other token weighs the integer nearest below
// 2^40 exp((logit - top) / temperature), a product of f32 operations that are written out here
// (no libm, nothing the compiler may fuse). Sums of integers have no order, so top-p, the total and
// the draw are exact and can be cut into threads, warps or ranks at will.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "kernels/adjust_logits.h"
#include "kernels/logprobs.h"
#include "kernels/philox.h"
#include "kernels/sample.h"

#if defined(__CUDACC__)
#define VITRINE_HOST_DEVICE __host__ __device__
#else
#define VITRINE_HOST_DEVICE
#endif

namespace vitrine {

inline constexpr uint64_t kTopWeight = uint64_t{1} << 40;

// Lower temperatures are greedy. From here on a subnormal difference of logits weighs nothing, so
// that threads that flush subnormals draw the same token as those that do not.
inline constexpr float kLeastTemperature = 0x1p-60f;

// a * b + c, rounded twice on every machine.
VITRINE_HOST_DEVICE inline float RoundedMultiplyAdd(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(__fmul_rn(a, b), c);
#else
  return a * b + c;
#endif
}

// Larger logit, larger key; the two zeros share one. Not for NaN.
VITRINE_HOST_DEVICE inline uint32_t LogitKey(float logit) {
  uint32_t bits = std::bit_cast<uint32_t>(logit);
  if (bits == 0x80000000u) bits = 0;
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

inline constexpr uint32_t kInfinityKey = 0xff800000u;          // LogitKey(+inf)
inline constexpr uint32_t kNegativeInfinityKey = 0x007fffffu;  // LogitKey(-inf)

VITRINE_HOST_DEVICE inline bool IsNan(float x) {
  return (std::bit_cast<uint32_t>(x) & 0x7fffffffu) > 0x7f800000u;
}

// `changed` where `logit` is finite, kept finite; else `logit`.
VITRINE_HOST_DEVICE inline float KeptFinite(float changed, float logit) {
  constexpr float kLargest = 3.402823466e+38f;
  if (!(logit >= -kLargest && logit <= kLargest)) return logit;
  if (changed > kLargest) return kLargest;
  return changed < -kLargest ? -kLargest : changed;
}

// A ban does not hide that the model is broken.
VITRINE_HOST_DEVICE inline float BannedLogit(float logit) {
  constexpr uint32_t kNegativeInfinityBits = 0xff800000u;
  constexpr float kLargest = 3.402823466e+38f;
  return logit <= kLargest ? std::bit_cast<float>(kNegativeInfinityBits) : logit;
}

VITRINE_HOST_DEVICE inline float BiasedLogit(float logit, float bias) {
  return KeptFinite(logit + bias, logit);
}

// Logit of a token that was `generated` times.
VITRINE_HOST_DEVICE inline float PenalizedLogit(float logit, int32_t generated, float repetition,
                                                float presence, float frequency) {
  const float repeated = KeptFinite(logit > 0.0f ? logit / repetition : logit * repetition, logit);
  if (generated == 0) return repeated;
  const float once = repeated - presence;
  return KeptFinite(RoundedMultiplyAdd(static_cast<float>(generated), -frequency, once), logit);
}

// Below this, exp(x) is less than 2^-40 and weighs nothing.
inline constexpr float kLeastExponent = -28.0f;

// Weight of `logit` in a row whose largest logit is `top` (finite, >= logit), for temperatures of
// at least kLeastTemperature. exp by reduction to [-ln 2 / 2, ln 2 / 2] and its Taylor polynomial
// of degree 7 (error 6e-9).
VITRINE_HOST_DEVICE inline uint64_t SampleWeight(float logit, float top, float temperature) {
  const float x = (logit - top) / temperature;
  if (!(x > kLeastExponent)) return 0;
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;  // 9 bits: its product with n is exact.
  constexpr float kLn2Low = -2.12194440e-4f;
  const int n = static_cast<int>(RoundedMultiplyAdd(x, kLog2E, -0.5f));  // Nearest, since x <= 0.
  const float exponent = static_cast<float>(n);
  float r = RoundedMultiplyAdd(exponent, -kLn2High, x);
  r = RoundedMultiplyAdd(exponent, -kLn2Low, r);
  float p = 1.0f / 5040;
  p = RoundedMultiplyAdd(p, r, 1.0f / 720);
  p = RoundedMultiplyAdd(p, r, 1.0f / 120);
  p = RoundedMultiplyAdd(p, r, 1.0f / 24);
  p = RoundedMultiplyAdd(p, r, 1.0f / 6);
  p = RoundedMultiplyAdd(p, r, 0.5f);
  p = RoundedMultiplyAdd(p, r, 1.0f);
  p = RoundedMultiplyAdd(p, r, 1.0f);
  const float scale = std::bit_cast<float>(static_cast<uint32_t>(n + 40 + 127) << 23);
  return static_cast<uint64_t>(p * scale);
}

// The mass that top-p must reach out of `total` (at most 2^63): `top_p` of it, rounded up.
VITRINE_HOST_DEVICE inline uint64_t TopPMass(float top_p, uint64_t total) {
  const double wanted = static_cast<double>(top_p) * 4294967296.0;  // Exact.
  uint64_t fraction = static_cast<uint64_t>(wanted);
  if (static_cast<double>(fraction) < wanted) ++fraction;
  const uint64_t high = (total >> 32) * fraction;
  const uint64_t low = ((total & 0xffffffffu) * fraction + 0xffffffffu) >> 32;
  return high + low > 0 ? high + low : 1;
}

// The least weight that min-p keeps where `best` is the largest; 1 where it is off, since weight 0
// cannot be drawn.
VITRINE_HOST_DEVICE inline uint64_t MinPWeight(float min_p, uint64_t best) {
  const double wanted = static_cast<double>(min_p) * static_cast<double>(best);
  uint64_t weight = static_cast<uint64_t>(wanted);
  if (static_cast<double>(weight) < wanted) ++weight;
  return weight > 0 ? weight : 1;
}

// A uniform integer below `total`: the draw takes the first token, in order of ids, at which the
// running sum of weights exceeds it.
VITRINE_HOST_DEVICE inline uint64_t UniformBelow(uint64_t random, uint64_t total) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(random, total);
#else
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((Wide{random} * total) >> 64);
#endif
}

// (top - logit) / temperature in units of 2^-24, for a logit that has a weight. A token's surprise
// is that plus a constant, the logarithm of the sum of weights; so the surprise whose distance
// typical sampling takes, the entropy, is the mean of it plus the same constant.
VITRINE_HOST_DEVICE inline uint32_t SampleDepth(float logit, float top, float temperature) {
  return static_cast<uint32_t>((top - logit) / temperature * 0x1p24f);
}

// Sums of weight * depth pass 64 bits.
__extension__ using WideSum = unsigned __int128;

// What temperature, top-k, typical, top-p and min-p leave of a row. Of tokens tied at the border of
// top-p just as many stay as are needed, those with the lowest ids.
struct SampleFilter {
  float top = 0.0f;
  float temperature = 1.0f;
  uint32_t least_key = 0;
  int32_t last_tied_id = INT32_MAX;  // Tokens with least_key stay up to this id.
  uint64_t least_weight = 1;
  bool is_typical = false;
  uint32_t mean_depth = 0;
  uint32_t typical_distance = 0;  // Tokens stay up to this distance from mean_depth.

  // Of a token that has a weight.
  VITRINE_HOST_DEVICE uint32_t DistanceFromMean(float logit) const {
    const uint32_t depth = SampleDepth(logit, top, temperature);
    return depth > mean_depth ? depth - mean_depth : mean_depth - depth;
  }

  // 0 for a token that was filtered out.
  VITRINE_HOST_DEVICE uint64_t Weight(float logit, int32_t id) const {
    const uint32_t key = LogitKey(logit);
    if (key < least_key || (key == least_key && id > last_tied_id)) return 0;
    const uint64_t weight = SampleWeight(logit, top, temperature);
    if (weight < least_weight) return 0;
    return is_typical && DistanceFromMean(logit) > typical_distance ? 0 : weight;
  }
};

// One row of AdjustLogits; any thread.
void AdjustLogitsRow(std::span<const float> logits, const LogitAdjustment& adjustment,
                     std::span<float> output);

// The filter of a row that is not greedy and whose largest logit is `top`, as ArgMax found it.
//
// `logits` here and below may be the part of a row that alone can pass the filter, in order of ids:
// top-k and min-p keep the same tokens of it as of the row. Where top-p comes first, `left_out` is
// the weight of the others; it is the caller's part to see that top-p needs none of them.
SampleFilter MakeSampleFilter(std::span<const float> logits, float top, const SampleRow& row,
                              uint64_t left_out = 0);

// The distribution that `row` asks for, of logits whose largest is that of `best`.
SampleFilter LogprobsFilter(std::span<const float> logits, int32_t best, const LogprobsRow& row,
                            const SampleRow& sampling, uint64_t left_out = 0);

// The lowest id of the largest logit; kNoToken for a row with NaN, +inf or nothing above -inf.
int32_t ArgMax(std::span<const float> logits);

// One row of Sample: a place in `logits`. Needs no memory but its stack (16 KiB); any thread.
int32_t SampleToken(std::span<const float> logits, const SampleRow& row, uint64_t left_out = 0);

}  // namespace vitrine
