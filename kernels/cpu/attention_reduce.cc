#include "kernels/cpu/attention_reduce.h"

#include <algorithm>
#include <cmath>

namespace vitrine::cpu {
namespace {

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

class RowReducer {
 public:
  RowReducer(const AttentionReduceArgs& args, size_t row)
      : args_(args),
        row_(row),
        keys_(args.rows[row]),
        input_(args.input.data() +
               static_cast<int64_t>(row) * args.members * int64_t{args.key_columns}) {}

  void Combined() const {
    float* output = args_.combined.data() + static_cast<int64_t>(row_) * args_.key_columns;
    for (int key = 0; key < args_.key_columns; ++key) output[key] = At(key);
  }

  void Stats() const {
    double entropy = 0;
    double distance = 0;
    int best = keys_.first_key;
    float largest = At(best);
    for (int key = keys_.first_key; key <= keys_.position; ++key) {
      const float value = At(key);
      const double weight = static_cast<double>(value);
      if (value > 0) entropy -= weight * std::log(weight);
      distance += weight * (keys_.position - key);
      if (value > largest) {
        best = key;
        largest = value;
      }
    }
    float* stats = args_.stats.data() + row_ * kAttentionStats;
    stats[0] =
        Combine(args_, args_.log_sum_exp.data() + static_cast<int64_t>(row_) * args_.members, 1);
    stats[1] = static_cast<float>(entropy);
    stats[2] = largest;
    stats[3] = static_cast<float>(best);
    stats[4] = At(keys_.position);
    stats[5] = At(0);
    stats[6] = static_cast<float>(distance);
    stats[7] = static_cast<float>(keys_.position - keys_.first_key + 1);
  }

  void TopK() const {
    const size_t k = static_cast<size_t>(args_.top_k);
    uint32_t* top_keys = args_.top_keys.data() + row_ * k;
    std::fill_n(top_keys, k, kNoKey);
    size_t found = 0;
    const KeyRange all = {0, args_.key_columns};
    const std::span<const KeyRange> ranges =
        args_.top_ranges.empty() ? std::span(&all, 1) : args_.top_ranges;
    for (const KeyRange& range : ranges) {
      const int end = std::min(range.end, keys_.position + 1);
      for (int key = std::max(range.begin, keys_.first_key); key < end; ++key) {
        found = Insert(key, top_keys, found);
      }
    }
    if (!args_.top_values.empty()) {
      float* top_values = args_.top_values.data() + row_ * k;
      for (size_t i = 0; i < k; ++i) top_values[i] = i < found ? Value(top_keys[i]) : 0.0f;
    }
    if (!args_.tail_mass.empty()) TailMass(top_keys, found);
  }

  void Spans() const {
    const size_t spans = args_.span_begin.size() - 1;
    for (size_t s = 0; s < spans; ++s) {
      double mass = 0;
      for (int i = args_.span_begin[s]; i < args_.span_begin[s + 1]; ++i) {
        const KeyRange& range = args_.span_ranges[static_cast<size_t>(i)];
        const int end = std::min(range.end, args_.key_columns);
        for (int key = range.begin; key < end; ++key) mass += static_cast<double>(At(key));
      }
      args_.span_mass.data()[row_ * spans + s] = static_cast<float>(mass);
    }
  }

 private:
  float At(int key) const { return Combine(args_, input_ + key, args_.key_columns); }

  float Value(uint32_t key) const { return At(static_cast<int>(key)); }

  // Keys come in ascending order, so one that is not larger than another belongs behind it.
  size_t Insert(int key, uint32_t* top_keys, size_t found) const {
    const size_t k = static_cast<size_t>(args_.top_k);
    const float value = At(key);
    if (found == k && (k == 0 || !(value > Value(top_keys[k - 1])))) return found;
    size_t place = found == k ? k - 1 : found;
    for (; place > 0 && value > Value(top_keys[place - 1]); --place) {
      top_keys[place] = top_keys[place - 1];
    }
    top_keys[place] = static_cast<uint32_t>(key);
    return std::min(found + 1, k);
  }

  void TailMass(const uint32_t* top_keys, size_t found) const {
    double tail = 0;
    for (int key = 0; key < args_.key_columns; ++key) {
      const bool is_top =
          std::find(top_keys, top_keys + found, static_cast<uint32_t>(key)) != top_keys + found;
      if (!is_top) tail += static_cast<double>(At(key));
    }
    args_.tail_mass.data()[row_] = static_cast<float>(tail);
  }

  const AttentionReduceArgs& args_;
  const size_t row_;
  const AttentionRowKeys keys_;
  const float* input_;
};

}  // namespace

void ReduceAttentionRow(const AttentionReduceArgs& args, size_t row) {
  const RowReducer reducer(args, row);
  if (!args.combined.empty()) reducer.Combined();
  if (!args.stats.empty()) reducer.Stats();
  if (!args.top_keys.empty()) reducer.TopK();
  if (!args.span_mass.empty()) reducer.Spans();
}

}  // namespace vitrine::cpu
