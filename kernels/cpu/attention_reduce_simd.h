// What is asked about one row of attention.
//
// Rows are walked in blocks of 16 keys with one accumulator per lane, so that compilers keep them
// in vector registers; what a row gives depends on the row alone. All is a template of the
// instruction set: it must not be shared between files that are compiled for different ones.
#pragma once

#include <algorithm>
#include <bit>
#include <limits>
#include <span>

#include "kernels/attention_reduce.h"
#include "kernels/cpu/vector_math_simd.h"

namespace vitrine::cpu {

inline constexpr int kReduceLanes = 16;

// One number per lane of a block.
template <class S, class T>
struct Lanes {
  T lane[kReduceLanes] = {};

  T Total() const {
    T total = 0;
    for (const T value : lane) total += value;
    return total;
  }
};

// x ln x for 0 <= x, with a relative error below 3e-7: x = m 2^e with m in [1/sqrt(2), sqrt(2)),
// and ln m = 2 artanh(s), s = (m - 1) / (m + 1), by its series.
template <class S>
VITRINE_INLINE float TimesLog(float x) {
  constexpr uint32_t kHalfRoot = 0x3F3504F3u;  // 1 / sqrt(2)
  const auto bits = std::bit_cast<int32_t>(x) - static_cast<int32_t>(kHalfRoot);
  const auto exponent = static_cast<float>(bits >> 23);
  const float m = std::bit_cast<float>((bits & 0x7FFFFF) + static_cast<int32_t>(kHalfRoot));
  const float s = (m - 1.0f) / (m + 1.0f);
  const float square = s * s;
  float series = 1.0f / 9.0f;
  series = series * square + 1.0f / 7.0f;
  series = series * square + 1.0f / 5.0f;
  series = series * square + 1.0f / 3.0f;
  series = series * square + 1.0f;
  return x * (exponent * kLn2 + 2.0f * s * series);
}

// Sum of row[begin, end).
template <class S>
double SumOf(const float* row, int begin, int end) {
  Lanes<S, double> sums;
  int key = begin;
  for (; key + kReduceLanes <= end; key += kReduceLanes) {
    for (int i = 0; i < kReduceLanes; ++i) sums.lane[i] += static_cast<double>(row[key + i]);
  }
  double sum = sums.Total();
  for (; key < end; ++key) sum += static_cast<double>(row[key]);
  return sum;
}

template <class S>
class RowReducer {
 public:
  RowReducer(const AttentionReduceArgs& args, size_t index, const float* row, float log_sum_exp)
      : args_(args), index_(index), keys_(args.rows[index]), row_(row), log_sum_exp_(log_sum_exp) {}

  void Stats() const {
    Sums sums;
    int best = keys_.first_key;
    int key = keys_.first_key;
    for (; key + kReduceLanes <= keys_.position + 1; key += kReduceLanes) {
      AddStats(row_ + key, key, sums, best);
    }
    // Places behind the row count as weight 0, which adds nothing.
    Lanes<S, float> last;
    for (int i = 0; key + i <= keys_.position; ++i) last.lane[i] = row_[key + i];
    AddStats(last.lane, key, sums, best);
    float* stats = args_.stats.data() + index_ * kAttentionStats;
    stats[0] = log_sum_exp_;
    stats[1] = static_cast<float>(sums.entropy.Total());
    stats[2] = row_[best];
    stats[3] = static_cast<float>(best);
    stats[4] = row_[keys_.position];
    stats[5] = row_[0];
    stats[6] = static_cast<float>(sums.distance.Total());
    stats[7] = static_cast<float>(keys_.position - keys_.first_key + 1);
  }

  void TopK() const {
    const size_t k = static_cast<size_t>(args_.top_k);
    uint32_t* top_keys = args_.top_keys.data() + index_ * k;
    std::fill_n(top_keys, k, kNoKey);
    const size_t found = k <= kReduceLanes ? FindFew(top_keys) : FindMany(top_keys);
    if (!args_.top_values.empty()) {
      float* top_values = args_.top_values.data() + index_ * k;
      for (size_t i = 0; i < k; ++i) top_values[i] = i < found ? row_[top_keys[i]] : 0.0f;
    }
    if (!args_.tail_mass.empty()) TailMass(top_keys, found);
  }

  void Spans() const {
    const size_t spans = args_.span_begin.size() - 1;
    for (size_t s = 0; s < spans; ++s) {
      double mass = 0;
      for (int i = args_.span_begin[s]; i < args_.span_begin[s + 1]; ++i) {
        const KeyRange& range = args_.span_ranges[static_cast<size_t>(i)];
        mass += SumOf<S>(row_, range.begin, std::min(range.end, args_.key_columns));
      }
      args_.span_mass.data()[index_ * spans + s] = static_cast<float>(mass);
    }
  }

 private:
  struct Sums {
    Lanes<S, double> entropy;
    Lanes<S, double> distance;
  };

  // A block of weights, those of keys from `key` on.
  void AddStats(const float* block, int key, Sums& sums, int& best) const {
    const auto nearest = static_cast<float>(keys_.position - key);
    for (int i = 0; i < kReduceLanes; ++i) {
      const float weight = block[i];
      sums.entropy.lane[i] -= static_cast<double>(TimesLog<S>(weight));
      sums.distance.lane[i] +=
          static_cast<double>(weight) * static_cast<double>(nearest - static_cast<float>(i));
    }
    if (!(S::ReduceMax(S::Load(block)) > row_[best])) return;
    for (int i = 0; i < kReduceLanes; ++i) {
      if (block[i] > row_[best]) best = key + i;
    }
  }

  // visit(key) for the keys that may be chosen, in ascending order, but not for those of a whole
  // block whose numbers are not above `bound`, which visit may raise.
  template <class Visit>
  void ForEachCandidate(const float& bound, Visit&& visit) const {
    const KeyRange all = {0, args_.key_columns};
    const std::span<const KeyRange> ranges =
        args_.top_ranges.empty() ? std::span(&all, 1) : args_.top_ranges;
    for (const KeyRange& range : ranges) {
      const int end = std::min(range.end, keys_.position + 1);
      int key = std::max(range.begin, keys_.first_key);
      for (; key + kReduceLanes <= end; key += kReduceLanes) {
        uint32_t lanes = S::LanesAbove(S::Load(row_ + key), S::Set(bound));
        for (; lanes != 0; lanes &= lanes - 1) visit(key + std::countr_zero(lanes));
      }
      for (; key < end; ++key) visit(key);
    }
  }

  // The largest up to 16: sorted in two registers, the smallest in the last lane; lanes in front of
  // a shorter list hold what nothing displaces. Returns how many there are.
  size_t FindFew(uint32_t* top_keys) const {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const auto k = static_cast<size_t>(args_.top_k);
    const size_t unused = kReduceLanes - k;
    Lanes<S, float> values;
    Lanes<S, float> keys;  // Positions are below 2^24, so they are exact.
    for (size_t i = 0; i < kReduceLanes; ++i) values.lane[i] = i < unused ? kInfinity : -kInfinity;
    auto sorted = S::Load(values.lane);
    auto sorted_keys = S::Set(-1.0f);
    float smallest = values.lane[kReduceLanes - 1];
    ForEachCandidate(smallest, [&](int key) {
      const float value = row_[key];
      if (!(value > smallest)) return;
      // Keys come in ascending order, so one that is not larger than another goes behind it.
      const auto x = S::Set(value);
      const auto above = S::ShiftIn(sorted, kInfinity);
      const auto above_keys = S::ShiftIn(sorted_keys, -1.0f);
      const auto x_key = S::Set(static_cast<float>(key));
      sorted_keys =
          S::SelectLess(sorted, x, S::SelectLess(above, x, above_keys, x_key), sorted_keys);
      sorted = S::SelectLess(sorted, x, S::SelectLess(above, x, above, x), sorted);
      S::Store(values.lane, sorted);
      smallest = values.lane[kReduceLanes - 1];
    });
    S::Store(keys.lane, sorted_keys);
    size_t found = 0;
    while (found < k && keys.lane[unused + found] >= 0.0f) {
      top_keys[found] = static_cast<uint32_t>(keys.lane[unused + found]);
      ++found;
    }
    return found;
  }

  size_t FindMany(uint32_t* top_keys) const {
    const auto k = static_cast<size_t>(args_.top_k);
    size_t found = 0;
    float smallest = -std::numeric_limits<float>::infinity();
    ForEachCandidate(smallest, [&](int key) {
      found = Insert(key, top_keys, found);
      if (found == k) smallest = row_[top_keys[k - 1]];
    });
    return found;
  }

  // Keys come in ascending order, so one that is not larger than another belongs behind it.
  size_t Insert(int key, uint32_t* top_keys, size_t found) const {
    const size_t k = static_cast<size_t>(args_.top_k);
    const float value = row_[key];
    if (found == k && !(value > row_[top_keys[k - 1]])) return found;
    size_t place = found == k ? k - 1 : found;
    for (; place > 0 && value > row_[top_keys[place - 1]]; --place) {
      top_keys[place] = top_keys[place - 1];
    }
    top_keys[place] = static_cast<uint32_t>(key);
    return std::min(found + 1, k);
  }

  // In double nothing is lost by taking the largest off the sum of all.
  void TailMass(const uint32_t* top_keys, size_t found) const {
    double tail = SumOf<S>(row_, 0, args_.key_columns);
    for (size_t i = 0; i < found; ++i) tail -= static_cast<double>(row_[top_keys[i]]);
    args_.tail_mass.data()[index_] = static_cast<float>(std::max(0.0, tail));
  }

  const AttentionReduceArgs& args_;
  const size_t index_;
  const AttentionRowKeys keys_;
  const float* row_;
  const float log_sum_exp_;
};

// `row`: one of args.rows, already combined, with its log-sum-exp.
template <class S>
void ReduceCombinedRow(const AttentionReduceArgs& args, size_t index, const float* row,
                       float log_sum_exp) {
  const RowReducer<S> reducer(args, index, row, log_sum_exp);
  if (!args.stats.empty()) reducer.Stats();
  if (!args.top_keys.empty()) reducer.TopK();
  if (!args.span_mass.empty()) reducer.Spans();
}

}  // namespace vitrine::cpu
