#include "kernels/reference/attention_reduce.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace vitrine::reference {
namespace {

// Number `column` of `members` rows that lie `stride` apart, as one.
float Combine(const AttentionReduceArgs& args, const float* first, int64_t stride) {
  double sum = 0;
  float largest = *first;
  for (int m = 0; m < args.members; ++m) {
    sum += first[m * stride];
    largest = std::max(largest, first[m * stride]);
  }
  return args.combine == AttentionCombine::kMax ? largest : static_cast<float>(sum / args.members);
}

std::vector<float> CombinedRow(const AttentionReduceArgs& args, size_t r) {
  const int64_t columns = args.key_columns;
  const float* input = args.input.data() + static_cast<int64_t>(r) * args.members * columns;
  std::vector<float> row(static_cast<size_t>(columns));
  for (float& combined : row) combined = Combine(args, input++, columns);
  return row;
}

void WriteStats(const AttentionReduceArgs& args, size_t r, std::span<const float> row) {
  const AttentionRowKeys& keys = args.rows[r];
  double entropy = 0;
  double distance = 0;
  size_t best = static_cast<size_t>(keys.first_key);
  for (int key = keys.first_key; key <= keys.position; ++key) {
    const auto k = static_cast<size_t>(key);
    if (row[k] > 0) entropy -= row[k] * std::log(double{row[k]});
    distance += double{row[k]} * (keys.position - key);
    if (row[k] > row[best]) best = k;
  }
  const float* log_sum_exp = args.log_sum_exp.data() + static_cast<int64_t>(r) * args.members;
  float* stats = args.stats.data() + r * kAttentionStats;
  stats[0] = Combine(args, log_sum_exp, 1);
  stats[1] = static_cast<float>(entropy);
  stats[2] = row[best];
  stats[3] = static_cast<float>(best);
  stats[4] = row[static_cast<size_t>(keys.position)];
  stats[5] = row[0];
  stats[6] = static_cast<float>(distance);
  stats[7] = static_cast<float>(keys.position - keys.first_key + 1);
}

// The keys of a row that compete for its top-k, ascending.
std::vector<uint32_t> Candidates(const AttentionReduceArgs& args, const AttentionRowKeys& keys) {
  std::vector<uint32_t> candidates;
  const KeyRange all = {0, args.key_columns};
  const std::span<const KeyRange> ranges =
      args.top_ranges.empty() ? std::span(&all, 1) : args.top_ranges;
  for (const KeyRange& range : ranges) {
    const int end = std::min(range.end, keys.position + 1);
    for (int key = std::max(range.begin, keys.first_key); key < end; ++key) {
      candidates.push_back(static_cast<uint32_t>(key));
    }
  }
  return candidates;
}

void WriteTopK(const AttentionReduceArgs& args, size_t r, std::span<const float> row) {
  std::vector<uint32_t> keys = Candidates(args, args.rows[r]);
  std::ranges::sort(
      keys, [&](uint32_t a, uint32_t b) { return row[a] > row[b] || (row[a] == row[b] && a < b); });
  keys.resize(static_cast<size_t>(args.top_k), kNoKey);
  std::vector<float> rest(row.begin(), row.end());
  for (size_t i = 0; i < keys.size(); ++i) {
    const size_t place = r * keys.size() + i;
    args.top_keys.data()[place] = keys[i];
    args.top_values.data()[place] = keys[i] == kNoKey ? 0.0f : row[keys[i]];
    if (keys[i] != kNoKey) rest[keys[i]] = 0.0f;
  }
  if (args.tail_mass.empty()) return;
  double tail = 0;
  for (const float weight : rest) tail += weight;
  args.tail_mass.data()[r] = static_cast<float>(tail);
}

void WriteSpans(const AttentionReduceArgs& args, size_t r, std::span<const float> row) {
  const size_t spans = args.span_begin.size() - 1;
  for (size_t s = 0; s < spans; ++s) {
    double mass = 0;
    for (int i = args.span_begin[s]; i < args.span_begin[s + 1]; ++i) {
      const KeyRange& range = args.span_ranges[static_cast<size_t>(i)];
      const int end = std::min(range.end, args.key_columns);
      for (int key = range.begin; key < end; ++key) mass += row[static_cast<size_t>(key)];
    }
    args.span_mass.data()[r * spans + s] = static_cast<float>(mass);
  }
}

}  // namespace

void AttentionReduce(const AttentionReduceArgs& args) {
  for (size_t r = 0; r < args.rows.size(); ++r) {
    const std::vector<float> row = CombinedRow(args, r);
    if (!args.combined.empty()) std::ranges::copy(row, args.combined.data() + r * row.size());
    if (!args.stats.empty()) WriteStats(args, r, row);
    if (!args.top_keys.empty()) WriteTopK(args, r, row);
    if (!args.span_mass.empty()) WriteSpans(args, r, row);
  }
}

}  // namespace vitrine::reference
