#pragma once

#include <cstdint>
#include <span>

#include "kernels/device_span.h"

namespace vitrine {

// Numbers per row of the statistics, in this order: log-sum-exp of the scores (natural log),
// entropy (nats), largest weight, its key position, weight on the query itself, weight on key 0,
// mean distance (sum of weight * (query - key)), number of visible keys.
inline constexpr int kAttentionStats = 8;

// Key of an unused top-k place; its weight is 0.
inline constexpr uint32_t kNoKey = 0xFFFFFFFFu;

// Half-open range of key positions.
struct KeyRange {
  int32_t begin = 0;
  int32_t end = 0;
  friend bool operator==(const KeyRange&, const KeyRange&) = default;
};

// The keys that one row sees: positions [first_key, position].
struct AttentionRowKeys {
  int32_t first_key = 0;
  int32_t position = 0;
};

// How the rows of several heads or layers become one.
enum class AttentionCombine { kMean, kMax };

// Reduces rows of attention (the output of AttentionRows) to what a reader asked for. First the
// `members` rows of each group become one, number by number; every output is computed from that
// row. Outputs without memory are not computed. Sums run over keys, and members, in ascending
// order, so a row's numbers depend on nothing but the row.
struct AttentionReduceArgs {
  DeviceSpan<const float> input;  // [rows, members, key_columns]
  int key_columns = 0;
  int members = 1;
  AttentionCombine combine = AttentionCombine::kMean;
  std::span<const AttentionRowKeys> rows;    // [rows], host memory; first_key: the members' least
  DeviceSpan<const float> log_sum_exp = {};  // [rows, members]; combined like the rows, for `stats`

  DeviceSpan<float> combined = {};  // [rows, key_columns], the rows themselves

  DeviceSpan<float> stats = {};  // [rows, kAttentionStats]; weights only

  // The largest numbers within `top_ranges`, which are ascending and disjoint; all keys when empty.
  int top_k = 0;
  std::span<const KeyRange> top_ranges = {};  // Host memory.
  DeviceSpan<uint32_t> top_keys = {};         // [rows, top_k], largest first, lowest key on a tie
  DeviceSpan<float> top_values = {};          // [rows, top_k]
  DeviceSpan<float> tail_mass = {};           // [rows], sum of all numbers left out; weights only

  // Span s adds up the keys of ranges [span_begin[s], span_begin[s + 1]), which are disjoint.
  std::span<const KeyRange> span_ranges = {};  // Host memory.
  std::span<const int32_t> span_begin = {};    // [spans + 1], host memory
  DeviceSpan<float> span_mass = {};            // [rows, spans]
};

}  // namespace vitrine
