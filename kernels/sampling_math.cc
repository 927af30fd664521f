#include "kernels/sampling_math.h"

#include <algorithm>
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

// Radix selection, most significant digit first: no pass moves or sorts anything. `key_of` orders
// the logits, `weight` maps (logit, key) to an integer; `target(total)` is in [1, total].
template <class KeyFunction, class WeightFunction, class TargetFunction>
Crossing FindCrossing(std::span<const float> logits, KeyFunction key_of, WeightFunction weight,
                      TargetFunction target_of) {
  std::array<uint64_t, kBins> bins = {};
  Crossing crossing;
  uint32_t prefix_mask = 0;
  uint64_t target = 0;
  for (int shift = kTopShift; shift > -kDigitBits; shift -= kDigitBits) {
    const int low = shift < 0 ? 0 : shift;
    bins.fill(0);
    for (const float logit : logits) {
      const uint32_t key = key_of(logit);
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
  return FindCrossing(logits, LogitKey, one, target).key;
}

void ApplyTypical(std::span<const float> logits, float typical_p, SampleFilter& filter) {
  uint64_t total = 0;
  WideSum depths = 0;
  for (const float logit : logits) {
    const uint64_t weight = filter.Weight(logit, 0);
    if (weight == 0) continue;
    total += weight;
    depths += WideSum{weight} * SampleDepth(logit, filter.top, filter.temperature);
  }
  filter.mean_depth = static_cast<uint32_t>(depths / total);
  const auto weight_of = [&](float logit, uint32_t) { return filter.Weight(logit, 0); };
  const auto nearness = [&](float logit) {
    return weight_of(logit, 0) > 0 ? ~filter.DistanceFromMean(logit) : 0;
  };
  const auto target = [&](uint64_t sum) { return TopPMass(typical_p, sum); };
  filter.typical_distance = ~FindCrossing(logits, nearness, weight_of, target).key;
  filter.is_typical = true;
}

void ApplyTopP(std::span<const float> logits, float top_p, uint64_t left_out,
               SampleFilter& filter) {
  const auto mass = [&](float logit, uint32_t) { return filter.Weight(logit, 0); };
  uint64_t target = 0;
  const auto target_of = [&](uint64_t total) { return target = TopPMass(top_p, total + left_out); };
  const Crossing crossing = FindCrossing(logits, LogitKey, mass, target_of);
  filter.least_key = crossing.key;
  uint64_t sum = crossing.above;
  for (size_t id = 0; sum < target; ++id) {
    if (LogitKey(logits[id]) != crossing.key) continue;
    sum += SampleWeight(logits[id], filter.top, filter.temperature);
    filter.last_tied_id = static_cast<int32_t>(id);
  }
}

// Of what the filter keeps: less than kTopWeight only where typical dropped the most likely token.
uint64_t LargestWeight(std::span<const float> logits, const SampleFilter& filter) {
  if (!filter.is_typical) return kTopWeight;
  uint64_t largest = 0;
  for (size_t id = 0; id < logits.size(); ++id) {
    largest = std::max(largest, filter.Weight(logits[id], static_cast<int32_t>(id)));
  }
  return largest;
}

}  // namespace

void AdjustLogitsRow(std::span<const float> logits, const LogitAdjustment& adjustment,
                     std::span<float> output) {
  if (adjustment.allowed.empty()) {
    std::ranges::copy(logits, output.begin());
  } else {
    std::ranges::transform(logits, output.begin(), BannedLogit);
    for (const int32_t id : adjustment.allowed) {
      output[static_cast<size_t>(id)] = logits[static_cast<size_t>(id)];
    }
  }
  for (const TokenBias& entry : adjustment.biases) {
    float& logit = output[static_cast<size_t>(entry.token_id)];
    logit = BiasedLogit(logit, entry.bias);
  }
  for (const std::span<const int32_t> ids : {adjustment.banned, adjustment.withheld}) {
    for (const int32_t id : ids) {
      float& logit = output[static_cast<size_t>(id)];
      logit = BannedLogit(logit);
    }
  }
  for (const SeenToken& token : adjustment.seen) {
    float& logit = output[static_cast<size_t>(token.token_id)];
    logit = PenalizedLogit(logit, token.generated, adjustment.repetition_penalty,
                           adjustment.presence_penalty, adjustment.frequency_penalty);
  }
}

SampleFilter MakeSampleFilter(std::span<const float> logits, float top, const SampleRow& row,
                              uint64_t left_out) {
  SampleFilter filter{.top = top, .temperature = row.temperature};
  filter.least_key = TopKKey(logits, row.top_k);
  if (row.typical_p < 1.0f) ApplyTypical(logits, row.typical_p, filter);
  if (row.top_p < 1.0f) ApplyTopP(logits, row.top_p, left_out, filter);
  if (row.min_p > 0.0f) filter.least_weight = MinPWeight(row.min_p, LargestWeight(logits, filter));
  return filter;
}

SampleFilter LogprobsFilter(std::span<const float> logits, int32_t best, const LogprobsRow& row,
                            const SampleRow& sampling, uint64_t left_out) {
  const float top = logits[static_cast<size_t>(best)];
  if (!row.is_processed) return {.top = top};
  if (sampling.temperature >= kLeastTemperature) {
    return MakeSampleFilter(logits, top, sampling, left_out);
  }
  return {.top = top, .least_key = LogitKey(top), .last_tied_id = best};
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

int32_t SampleToken(std::span<const float> logits, const SampleRow& row, uint64_t left_out) {
  VITRINE_CHECK_LE(logits.size(), size_t{kMaxSampleVocabulary});
  const int32_t best = ArgMax(logits);
  if (best == kNoToken || row.temperature < kLeastTemperature) return best;
  const SampleFilter filter =
      MakeSampleFilter(logits, logits[static_cast<size_t>(best)], row, left_out);
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
