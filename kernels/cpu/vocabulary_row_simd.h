// Reading a row of logits in vectors: its largest, the part of it that a filter can pass, and the
// sum of all weights. Integer for integer what sampling_math.h computes one by one.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/cpu/vector_math_simd.h"
#include "kernels/cpu/vocabulary_row.h"

namespace vitrine::cpu {

template <class S>
class VocabularyRow {
 public:
  VocabularyRow(std::span<const float> logits, VocabularyScratch& scratch)
      : logits_(logits.data()), size_(static_cast<int>(logits.size())), scratch_(scratch) {}

  // Finds the largest logits; false for a row that is left to sampling_math.h: one without a token,
  // or whose logits are all so small that comparisons which take denormals for zero might err.
  bool Scan() {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    auto largest = S::Set(-kInfinity);
    uint32_t usable = kAllLanes;
    for (int begin = 0; begin < size_; begin += kGroupTokens) {
      auto maximum = S::Set(-kInfinity);
      ForEachVector(begin, kGroupTokens, [&](int, typename S::F logit) VITRINE_LAMBDA_INLINE {
        usable &= S::LanesAbove(S::Set(kInfinity), logit);  // Neither NaN nor infinity.
        maximum = S::Max(logit, maximum);
      });
      S::Store(scratch_.maxima + begin / kGroupTokens * kLogitLanes, maximum);
      largest = S::Max(maximum, largest);
    }
    top_ = S::ReduceMax(largest);
    return usable == kAllLanes && IsPlain(top_);
  }

  // Whether comparisons with `logit` see what sampling_math.h sees.
  static bool IsPlain(float logit) {
    const float magnitude = logit < 0 ? -logit : logit;
    return magnitude >= std::numeric_limits<float>::min() &&
           magnitude <= std::numeric_limits<float>::max();
  }

  float top() const { return top_; }

  int32_t FirstOfLargest() const {
    int32_t id = -1;
    for (int begin = 0; id < 0 && begin < size_; begin += kGroupTokens) {
      if (!GroupReaches(begin, top_)) continue;
      ForEachVector(begin, kGroupTokens, [&](int first, typename S::F logit) VITRINE_LAMBDA_INLINE {
        const uint32_t lanes = LanesFrom(top_, logit);
        if (id < 0 && lanes != 0) id = first + __builtin_ctz(lanes);
      });
    }
    return id;
  }

  // All tokens whose logit is at least `bound`; nothing where they are too many.
  Candidates From(float bound) {
    int count = 0;
    for (int begin = 0; begin < size_; begin += kGroupTokens) {
      if (!GroupReaches(begin, bound)) continue;
      ForEachVector(begin, kGroupTokens, [&](int first, typename S::F logit) VITRINE_LAMBDA_INLINE {
        const uint32_t lanes = LanesFrom(bound, logit);
        if (lanes == 0 || count > kMaxCandidates) return;
        count += S::StorePlaces(lanes, first, scratch_.ids + count);
      });
      if (count > kMaxCandidates) return {};
    }
    for (int i = 0; i < count; ++i) scratch_.logits[i] = logits_[scratch_.ids[i]];
    return {.logits = {scratch_.logits, static_cast<size_t>(count)},
            .ids = {scratch_.ids, static_cast<size_t>(count)}};
  }

  // Tokens among which the k most likely and all that tie with the k-th are; nothing where k is too
  // large for that. k of the largest logits of lanes are that many tokens: no other need be seen.
  Candidates Largest(int32_t k) {
    const int count = (size_ + kGroupTokens - 1) / kGroupTokens * kLogitLanes;
    if (k > count / 2) return {};
    __builtin_memcpy(scratch_.selection, scratch_.maxima,
                     static_cast<size_t>(count) * sizeof(float));
    const float bound = KthLargest({scratch_.selection, static_cast<size_t>(count)}, k);
    return bound > -std::numeric_limits<float>::infinity() ? From(bound) : Candidates();
  }

  // Tokens among which those are that top-p alone keeps; nothing where they are too many.
  Candidates MostLikely(const SampleRow& row) {
    const float temperature = row.temperature;
    const uint64_t total = TotalWeight(temperature);
    for (const double depth : {6.0, 8.0, 10.0, 12.0, 16.0, 28.0}) {
      Candidates found = From(static_cast<float>(double{top_} - depth * double{temperature}));
      if (found.ids.empty()) break;
      const uint64_t sum = SumOfWeights(found.logits, top_, temperature);
      found.left_out = total - sum;
      if (sum >= MassOfTopP(row, total)) return found;
    }
    return {};
  }

  // Tokens among which those are that min-p alone keeps; nothing where they are too many.
  Candidates Likely(const SampleRow& row) {
    constexpr double kMargin = 0.01;  // Of exponents; those of weights are good to 1e-6.
    const double bound =
        double{top_} + (std::log(double{row.min_p}) - kMargin) * double{row.temperature};
    const auto rounded = static_cast<float>(bound);
    const float below = std::nextafter(rounded, -std::numeric_limits<float>::infinity());
    return From(below);
  }

  uint64_t TotalWeight(float temperature) {
    uint64_t total = 0;
    for (int begin = 0; begin < size_; begin += kSumTokens) {
      const uint64_t sum = BlockWeight(begin, temperature);
      scratch_.sums[begin / kSumTokens] = sum;
      total += sum;
    }
    return total;
  }

  // After TotalWeight: the token at which the running sum of weights exceeds `rest`.
  int32_t TokenAt(uint64_t rest, float temperature) const {
    int begin = 0;
    for (; rest >= scratch_.sums[begin / kSumTokens]; begin += kSumTokens) {
      rest -= scratch_.sums[begin / kSumTokens];
    }
    const auto size = static_cast<size_t>(size_ - begin);
    return begin + PlaceAt({logits_ + begin, size}, top_, temperature, rest);
  }

  // Tokens that are more likely than `token`, whose logit is plain; of equal ones the first ids
  // are.
  int32_t CountAbove(int32_t token) const {
    const auto own = S::Set(logits_[token]);
    int32_t count = 0;
    ForEachVector(0, size_, [&](int first, typename S::F logit) VITRINE_LAMBDA_INLINE {
      const uint32_t above = S::LanesAbove(logit, own);
      uint32_t counted = above;
      if (first <= token) {
        const uint32_t equal = ~S::LanesAbove(own, logit) & ~above & kAllLanes;
        const uint32_t before = token - first >= kLogitLanes
                                    ? kAllLanes
                                    : (1u << static_cast<uint32_t>(token - first)) - 1u;
        counted |= equal & before;
      }
      count += __builtin_popcount(counted);
    });
    return count;
  }

 private:
  static constexpr uint32_t kAllLanes = (1u << kLogitLanes) - 1u;

  // visit(first id, 16 logits) for `count` tokens from `begin`; what is beyond the row is -inf.
  template <class Visit>
  VITRINE_INLINE void ForEachVector(int begin, int count, Visit&& visit) const {
    const int end = begin + count < size_ ? begin + count : size_;
    int id = begin;
    for (; id + kLogitLanes <= end; id += kLogitLanes) visit(id, S::Load(logits_ + id));
    if (id == end) return;
    float last[kLogitLanes];
    S::Store(last, S::Set(-std::numeric_limits<float>::infinity()));
    __builtin_memcpy(last, logits_ + id, static_cast<size_t>(end - id) * sizeof(float));
    visit(id, S::Load(last));
  }

  static VITRINE_INLINE uint32_t LanesFrom(float bound, typename S::F logit) {
    return ~S::LanesAbove(S::Set(bound), logit) & kAllLanes;
  }

  VITRINE_INLINE bool GroupReaches(int begin, float bound) const {
    return LanesFrom(bound, S::Load(scratch_.maxima + begin / kGroupTokens * kLogitLanes)) != 0;
  }

  // Rounded twice.
  static VITRINE_INLINE typename S::F MultiplyAdd(typename S::F a, typename S::F b,
                                                  typename S::F c) {
    return S::Add(S::Mul(a, b), c);
  }

  // Rounds down, |x| < 2^22.
  static VITRINE_INLINE typename S::F Floor(typename S::F x) {
    const auto nearest = S::Round(x);
    return S::SelectLess(x, nearest, S::Sub(nearest, S::Set(1.0f)), nearest);
  }

  // SampleWeight of sampling_math.h before it is made an integer, operation by operation.
  VITRINE_INLINE typename S::F Weights(typename S::F logit, typename S::F temperature) const {
    const auto least = S::Set(kLeastExponent);
    const auto exact = S::Div(S::Sub(logit, S::Set(top_)), temperature);
    const auto x = S::Max(exact, least);
    const auto shifted = MultiplyAdd(x, S::Set(kLog2E), S::Set(-0.5f));
    const auto n = S::Sub(S::Zero(), Floor(S::Sub(S::Zero(), shifted)));  // Towards zero.
    auto r = MultiplyAdd(n, S::Set(-0.693359375f), x);
    r = MultiplyAdd(n, S::Set(2.12194440e-4f), r);
    auto p = MultiplyAdd(S::Set(1.0f / 5040), r, S::Set(1.0f / 720));
    p = MultiplyAdd(p, r, S::Set(1.0f / 120));
    p = MultiplyAdd(p, r, S::Set(1.0f / 24));
    p = MultiplyAdd(p, r, S::Set(1.0f / 6));
    p = MultiplyAdd(p, r, S::Set(0.5f));
    p = MultiplyAdd(p, r, S::Set(1.0f));
    p = MultiplyAdd(p, r, S::Set(1.0f));
    const auto weight = S::Power2(p, S::Add(n, S::Set(40.0f)));
    return S::SelectLess(least, exact, weight, S::Zero());
  }

  // Weights have 41 bits: they are added as two numbers of 20 and 21.
  VITRINE_INLINE uint64_t BlockWeight(int begin, float temperature) const {
    const auto divisor = S::Set(temperature);
    auto high_sum = S::Zero();
    auto low_sum = S::Zero();
    ForEachVector(begin, kSumTokens, [&](int, typename S::F logit) VITRINE_LAMBDA_INLINE {
      const auto weight = Weights(logit, divisor);
      const auto high = Floor(S::Mul(weight, S::Set(0x1p-20f)));
      const auto low = Floor(S::Sub(weight, S::Mul(high, S::Set(0x1p20f))));
      high_sum = S::Add(high_sum, high);
      low_sum = S::Add(low_sum, low);
    });
    float highs[kLogitLanes];
    float lows[kLogitLanes];
    S::Store(highs, high_sum);
    S::Store(lows, low_sum);
    uint64_t high = 0;
    uint64_t low = 0;
    for (int lane = 0; lane < kLogitLanes; ++lane) {
      high += static_cast<uint32_t>(highs[lane]);
      low += static_cast<uint32_t>(lows[lane]);
    }
    return (high << 20) + low;
  }

  const float* logits_;
  int size_;
  VocabularyScratch& scratch_;
  float top_ = 0.0f;
};

}  // namespace vitrine::cpu
