// Rows are walked in blocks of 16 keys with one accumulator per lane, so that compilers keep them
// in vector registers; what a row gives depends on the row alone.
#include "kernels/cpu/attention_reduce.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

namespace vitrine::cpu {
namespace {

constexpr int kLanes = 16;

// One number per lane of a block.
template <class T>
struct Lanes {
  T lane[kLanes] = {};

  T Total() const {
    T total = 0;
    for (const T value : lane) total += value;
    return total;
  }
};

// Number `m` of `members` at values[m * stride] as one.
float Combine(const AttentionReduceArgs& args, const float* values, int64_t stride) {
  if (args.members == 1) return *values;
  double sum = 0;
  float largest = *values;
  for (int m = 0; m < args.members; ++m) {
    sum += static_cast<double>(values[m * stride]);
    largest = std::max(largest, values[m * stride]);
  }
  return args.combine == AttentionCombine::kMax
             ? largest
             : static_cast<float>(sum / static_cast<double>(args.members));
}

// x ln x for 0 <= x, with a relative error below 3e-7: x = m 2^e with m in [1/sqrt(2), sqrt(2)),
// and ln m = 2 artanh(s), s = (m - 1) / (m + 1), by its series.
inline float TimesLog(float x) {
  constexpr uint32_t kHalfRoot = 0x3F3504F3u;  // 1 / sqrt(2)
  constexpr float kLn2 = 0.693147181f;
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

inline float LargestOf(const float* block) {
  Lanes<float> largest;
  std::memcpy(largest.lane, block, sizeof(largest.lane));
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) {
      largest.lane[i] = std::max(largest.lane[i], largest.lane[i + half]);
    }
  }
  return largest.lane[0];
}

// Sum of row[begin, end).
double SumOf(const float* row, int begin, int end) {
  Lanes<double> sums;
  int key = begin;
  for (; key + kLanes <= end; key += kLanes) {
    for (int i = 0; i < kLanes; ++i) sums.lane[i] += static_cast<double>(row[key + i]);
  }
  double sum = sums.Total();
  for (; key < end; ++key) sum += static_cast<double>(row[key]);
  return sum;
}

class RowReducer {
 public:
  RowReducer(const AttentionReduceArgs& args, size_t index, const float* row)
      : args_(args), index_(index), keys_(args.rows[index]), row_(row) {}

  void Stats() const {
    Lanes<double> entropy;
    Lanes<double> distance;
    int best = keys_.first_key;
    for (int key = keys_.first_key; key <= keys_.position; key += kLanes) {
      const int count = std::min(kLanes, keys_.position + 1 - key);
      // Places behind the row count as weight 0, which adds nothing.
      Lanes<float> block;
      std::memcpy(block.lane, row_ + key, static_cast<size_t>(count) * sizeof(float));
      const auto nearest = static_cast<float>(keys_.position - key);
      for (int i = 0; i < kLanes; ++i) {
        const float weight = block.lane[i];
        entropy.lane[i] -= static_cast<double>(TimesLog(weight));
        distance.lane[i] +=
            static_cast<double>(weight) * static_cast<double>(nearest - static_cast<float>(i));
      }
      if (!(LargestOf(block.lane) > row_[best])) continue;
      for (int i = 0; i < count; ++i) {
        if (block.lane[i] > row_[best]) best = key + i;
      }
    }
    float* stats = args_.stats.data() + index_ * kAttentionStats;
    stats[0] =
        Combine(args_, args_.log_sum_exp.data() + static_cast<int64_t>(index_) * args_.members, 1);
    stats[1] = static_cast<float>(entropy.Total());
    stats[2] = row_[best];
    stats[3] = static_cast<float>(best);
    stats[4] = row_[keys_.position];
    stats[5] = row_[0];
    stats[6] = static_cast<float>(distance.Total());
    stats[7] = static_cast<float>(keys_.position - keys_.first_key + 1);
  }

  void TopK() const {
    const size_t k = static_cast<size_t>(args_.top_k);
    uint32_t* top_keys = args_.top_keys.data() + index_ * k;
    std::fill_n(top_keys, k, kNoKey);
    size_t found = 0;
    const KeyRange all = {0, args_.key_columns};
    const std::span<const KeyRange> ranges =
        args_.top_ranges.empty() ? std::span(&all, 1) : args_.top_ranges;
    for (const KeyRange& range : ranges) {
      const int end = std::min(range.end, keys_.position + 1);
      int key = std::max(range.begin, keys_.first_key);
      while (key < end) {
        const int count = std::min(kLanes, end - key);
        // Most blocks hold nothing that is among the largest so far.
        const bool is_below = found == k && k > 0 && count == kLanes &&
                              !(LargestOf(row_ + key) > row_[top_keys[k - 1]]);
        for (int i = 0; !is_below && i < count; ++i) found = Insert(key + i, top_keys, found);
        key += count;
      }
    }
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
        mass += SumOf(row_, range.begin, std::min(range.end, args_.key_columns));
      }
      args_.span_mass.data()[index_ * spans + s] = static_cast<float>(mass);
    }
  }

 private:
  // Keys come in ascending order, so one that is not larger than another belongs behind it.
  size_t Insert(int key, uint32_t* top_keys, size_t found) const {
    const size_t k = static_cast<size_t>(args_.top_k);
    const float value = row_[key];
    if (found == k && (k == 0 || !(value > row_[top_keys[k - 1]]))) return found;
    size_t place = found == k ? k - 1 : found;
    for (; place > 0 && value > row_[top_keys[place - 1]]; --place) {
      top_keys[place] = top_keys[place - 1];
    }
    top_keys[place] = static_cast<uint32_t>(key);
    return std::min(found + 1, k);
  }

  // In double nothing is lost by taking the largest off the sum of all.
  void TailMass(const uint32_t* top_keys, size_t found) const {
    double tail = SumOf(row_, 0, args_.key_columns);
    for (size_t i = 0; i < found; ++i) tail -= static_cast<double>(row_[top_keys[i]]);
    args_.tail_mass.data()[index_] = static_cast<float>(std::max(0.0, tail));
  }

  const AttentionReduceArgs& args_;
  const size_t index_;
  const AttentionRowKeys keys_;
  const float* row_;
};

}  // namespace

void ReduceAttentionRow(const AttentionReduceArgs& args, size_t row) {
  const auto columns = static_cast<size_t>(args.key_columns);
  const float* input = args.input.data() + row * static_cast<size_t>(args.members) * columns;
  const float* combined = input;
  if (args.members > 1 || !args.combined.empty()) {
    // Grows to the longest row that a worker has reduced.
    static thread_local std::vector<float> scratch;
    if (args.combined.empty()) scratch.resize(std::max(scratch.size(), columns));
    float* output = args.combined.empty() ? scratch.data() : args.combined.data() + row * columns;
    for (size_t key = 0; key < columns; ++key) {
      output[key] = Combine(args, input + key, args.key_columns);
    }
    combined = output;
  }
  const RowReducer reducer(args, row, combined);
  if (!args.stats.empty()) reducer.Stats();
  if (!args.top_keys.empty()) reducer.TopK();
  if (!args.span_mass.empty()) reducer.Spans();
}

}  // namespace vitrine::cpu
