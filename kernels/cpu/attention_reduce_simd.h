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

  double Total() const {
    double total = 0;
    for (const T value : lane) total += static_cast<double>(value);
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
  static constexpr float kLowest = -std::numeric_limits<float>::infinity();
  static constexpr int kRoom = 4 * kReduceLanes;  // Keys that compete for the largest few.

 public:
  RowReducer(const AttentionReduceArgs& args, size_t index, const float* row, float log_sum_exp)
      : args_(args), index_(index), keys_(args.rows[index]), row_(row), log_sum_exp_(log_sum_exp) {}

  void Stats() const {
    double entropy = 0;
    double distance = 0;
    int best = keys_.first_key;
    int key = keys_.first_key;
    while (key <= keys_.position) {
      Sums sums;
      const int end = std::min(key + kPartialKeys, keys_.position + 1);
      for (; key + kReduceLanes <= end; key += kReduceLanes) {
        AddStats(row_ + key, key, sums, best);
      }
      if (key < end) {
        // Places behind the row count as weight 0, which adds nothing.
        Lanes<S, float> last;
        std::copy(row_ + key, row_ + end, last.lane);
        AddStats(last.lane, key, sums, best);
        key = end;
      }
      entropy -= sums.log.Total();
      distance += sums.distance.Total();
    }
    float* stats = args_.stats.data() + index_ * kAttentionStats;
    stats[0] = log_sum_exp_;
    stats[1] = static_cast<float>(entropy);
    stats[2] = row_[best];
    stats[3] = static_cast<float>(best);
    stats[4] = row_[keys_.position];
    stats[5] = row_[0];
    stats[6] = static_cast<float>(distance);
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
  // Of so many keys sums are made in single precision: 16 numbers per lane.
  static constexpr int kPartialKeys = 16 * kReduceLanes;
  struct Sums {
    Lanes<S, float> log;  // x ln x
    Lanes<S, float> distance;
  };

  // A block of weights, those of keys from `key` on.
  void AddStats(const float* block, int key, Sums& sums, int& best) const {
    const auto nearest = static_cast<float>(keys_.position - key);
    for (int i = 0; i < kReduceLanes; ++i) {
      sums.log.lane[i] += TimesLog<S>(block[i]);
      sums.distance.lane[i] += block[i] * (nearest - static_cast<float>(i));
    }
    if (!(S::ReduceMax(S::Load(block)) > row_[best])) return;
    for (int i = 0; i < kReduceLanes; ++i) {
      if (block[i] > row_[best]) best = key + i;
    }
  }

  // visit(first, count) for the keys that may be chosen, in ascending blocks of up to 16.
  template <class Visit>
  VITRINE_INLINE void ForEachBlock(Visit&& visit) const {
    const KeyRange all = {0, args_.key_columns};
    const std::span<const KeyRange> ranges =
        args_.top_ranges.empty() ? std::span(&all, 1) : args_.top_ranges;
    for (const KeyRange& range : ranges) {
      const int end = std::min(range.end, keys_.position + 1);
      int key = std::max(range.begin, keys_.first_key);
      for (; key + kReduceLanes <= end; key += kReduceLanes) visit(key, kReduceLanes);
      if (key < end) visit(key, end - key);
    }
  }

  // Bit i: key first + i, of a block of `count`, has a number that reaches `bound`.
  VITRINE_INLINE uint32_t Reaching(float bound, int first, int count) const {
    const auto block =
        count == kReduceLanes ? S::Load(row_ + first) : S::LoadPartial(row_ + first, count);
    return ((1u << count) - 1) & ~S::LanesAbove(S::Set(bound), block);
  }

  // A number that at least k <= 32 keys reach, near the k-th largest: the k-th of those that are
  // the largest in their lane of every other block.
  VITRINE_INLINE float LowerBound(size_t k) const {
    typename S::F largest[2] = {S::Set(kLowest), S::Set(kLowest)};
    ForEachBlock([&](int key, int count) VITRINE_LAMBDA_INLINE {
      if (count < kReduceLanes) return;
      const auto before = largest[0];
      largest[0] = S::Max(largest[1], S::Load(row_ + key));
      largest[1] = before;
    });
    float values[2 * kReduceLanes];
    for (int i = 0; i < 2; ++i) S::Store(values + i * kReduceLanes, largest[i]);
    typename S::F above[2] = {S::Zero(), S::Zero()};  // How many are larger.
    for (const float value : values) {
      for (int i = 0; i < 2; ++i) {
        above[i] =
            S::Add(above[i], S::SelectLess(largest[i], S::Set(value), S::Set(1.0f), S::Zero()));
      }
    }
    auto smallest = S::Set(-std::numeric_limits<float>::max());
    for (int i = 0; i < 2; ++i) {
      const auto negative = S::Sub(S::Zero(), largest[i]);
      smallest = S::Max(smallest, S::SelectLess(above[i], S::Set(static_cast<float>(k)), negative,
                                                S::Set(kLowest)));
    }
    return -S::ReduceMax(smallest);
  }

  // Leaves the k largest of `keys` in front, in order. How many belong before each is counted: no
  // branch depends on a number. Returns how many are left.
  int Rank(size_t k, int32_t* keys, int count) const {
    float values[kRoom];
    int32_t found[kRoom];
    std::copy_n(keys, count, found);
    for (int i = 0; i < count; ++i) values[i] = row_[found[i]];
    const int blocks = (count + kReduceLanes - 1) / kReduceLanes;
    std::fill(values + count, values + blocks * kReduceLanes, kLowest);
    for (int i = 0; i < count; ++i) {
      const auto x = S::Set(values[i]);
      int before = 0;
      for (int b = 0; b < blocks; ++b) {
        const auto block = S::Load(values + b * kReduceLanes);
        const int lower_keys = std::clamp(i - b * kReduceLanes, 0, kReduceLanes);
        const uint32_t equal_or_above = ~S::LanesAbove(x, block) & ((1u << lower_keys) - 1);
        before += std::popcount(S::LanesAbove(block, x) | equal_or_above);
      }
      keys[before] = found[i];
    }
    return std::min(count, static_cast<int>(k));
  }

  // The largest up to 16. Returns how many there are.
  size_t FindFew(uint32_t* top_keys) const {
    const auto k = static_cast<size_t>(args_.top_k);
    int32_t keys[kRoom];
    int count = 0;
    float bound = LowerBound(k);
    ForEachBlock([&](int first, int size) VITRINE_LAMBDA_INLINE {
      count += S::StorePlaces(Reaching(bound, first, size), first, keys + count);
      if (count + kReduceLanes <= kRoom) return;
      count = Rank(k, keys, count);
      bound = row_[keys[k - 1]];
    });
    count = Rank(k, keys, count);
    std::copy_n(keys, count, top_keys);
    return static_cast<size_t>(count);
  }

  size_t FindMany(uint32_t* top_keys) const {
    const auto k = static_cast<size_t>(args_.top_k);
    size_t found = 0;
    float smallest = kLowest;
    ForEachBlock([&](int first, int size) {
      uint32_t lanes = Reaching(smallest, first, size);
      for (; lanes != 0; lanes &= lanes - 1) {
        found = Insert(first + std::countr_zero(lanes), top_keys, found);
        if (found == k) smallest = row_[top_keys[k - 1]];
      }
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
