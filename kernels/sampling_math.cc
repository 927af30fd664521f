#include "kernels/sampling_math.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/check.h"

namespace vitrine {
namespace {

constexpr int kDigitBits = 11;
constexpr int kTopShift = 32 - kDigitBits;
constexpr uint32_t kBins = 1u << kDigitBits;

// Where the sum of weights, from the largest key downwards, reaches a target.
struct Crossing {
  uint32_t key = 0;
  uint64_t above = 0;  // Sum of the weights of all larger keys; below the target.
};

// Radix selection, most significant digit first: no pass moves or sorts anything. `weight` maps
// (logit, key) to an integer; `target(total)` is in [1, total].
template <class WeightFunction, class TargetFunction>
Crossing FindCrossing(std::span<const float> logits, WeightFunction weight,
                      TargetFunction target_of) {
  std::array<uint64_t, kBins> bins = {};
  Crossing crossing;
  uint32_t prefix_mask = 0;
  uint64_t target = 0;
  for (int shift = kTopShift; shift > -kDigitBits; shift -= kDigitBits) {
    const int low = shift < 0 ? 0 : shift;
    bins.fill(0);
    for (const float logit : logits) {
      const uint32_t key = LogitKey(logit);
      if ((key & prefix_mask) == crossing.key) bins[(key >> low) % kBins] += weight(logit, key);
    }
    if (shift == kTopShift) {
      uint64_t total = 0;
      for (const uint64_t sum : bins) total += sum;
      target = target_of(total);
    }
    uint32_t bin = kBins - 1;
    while (crossing.above + bins[bin] < target) crossing.above += bins[bin--];
    // The last digit overlaps the one before; its upper bits are those of the prefix.
    crossing.key = (crossing.key & ~((kBins - 1) << low)) | (bin << low);
    prefix_mask = ~0u << low;
  }
  return crossing;
}

uint32_t TopKKey(std::span<const float> logits, int32_t top_k) {
  if (top_k == 0 || static_cast<size_t>(top_k) >= logits.size()) return 0;
  const auto one = [](float, uint32_t) { return uint64_t{1}; };
  const auto target = [&](uint64_t) { return static_cast<uint64_t>(top_k); };
  return FindCrossing(logits, one, target).key;
}

void ApplyTopP(std::span<const float> logits, float top_p, SampleFilter& filter) {
  const auto mass = [&](float logit, uint32_t key) {
    return key >= filter.least_key ? SampleWeight(logit, filter.top, filter.temperature) : 0;
  };
  uint64_t target = 0;
  const auto target_of = [&](uint64_t total) { return target = TopPMass(top_p, total); };
  const Crossing crossing = FindCrossing(logits, mass, target_of);
  filter.least_key = crossing.key;
  uint64_t sum = crossing.above;
  for (size_t id = 0; sum < target; ++id) {
    if (LogitKey(logits[id]) != crossing.key) continue;
    sum += SampleWeight(logits[id], filter.top, filter.temperature);
    filter.last_tied_id = static_cast<int32_t>(id);
  }
}

}  // namespace

SampleFilter MakeSampleFilter(std::span<const float> logits, float top, const SampleRow& row) {
  SampleFilter filter{.top = top, .temperature = row.temperature};
  filter.least_key = TopKKey(logits, row.top_k);
  if (row.top_p < 1.0f) ApplyTopP(logits, row.top_p, filter);
  filter.least_weight = MinPWeight(row.min_p);
  return filter;
}

int32_t ArgMax(std::span<const float> logits) {
  uint32_t best_key = kNegativeInfinityKey;
  size_t best = 0;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (IsNan(logits[id])) return kNoToken;
    const uint32_t key = LogitKey(logits[id]);
    if (key > best_key) {
      best_key = key;
      best = id;
    }
  }
  const bool usable = best_key > kNegativeInfinityKey && best_key < kInfinityKey;
  return usable ? static_cast<int32_t>(best) : kNoToken;
}

int32_t SampleToken(std::span<const float> logits, const SampleRow& row) {
  VITRINE_CHECK_LE(logits.size(), size_t{kMaxSampleVocabulary});
  const int32_t best = ArgMax(logits);
  if (best == kNoToken || row.temperature < kLeastTemperature) return best;
  const SampleFilter filter = MakeSampleFilter(logits, logits[static_cast<size_t>(best)], row);
  uint64_t total = 0;
  for (size_t id = 0; id < logits.size(); ++id) {
    total += filter.Weight(logits[id], static_cast<int32_t>(id));
  }
  uint64_t rest = UniformBelow(RandomBits(row.seed, row.position, row.choice), total);
  for (size_t id = 0; id < logits.size(); ++id) {
    const uint64_t weight = filter.Weight(logits[id], static_cast<int32_t>(id));
    if (rest < weight) return static_cast<int32_t>(id);
    rest -= weight;
  }
  VITRINE_CHECK(false);  // rest was below the total.
  return kNoToken;
}

}  // namespace vitrine
