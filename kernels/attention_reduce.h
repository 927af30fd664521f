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
};

// The keys that one input row sees: positions [first_key, position].
struct AttentionRowKeys {
  int32_t first_key = 0;
  int32_t position = 0;
};

// Reduces rows of attention weights (the output of AttentionRows, or means of such rows) to what a
// reader asked for. Empty outputs are not computed. Sums run over keys in ascending order, so a
// row's numbers depend on nothing but the row.
struct AttentionReduceArgs {
  DeviceSpan<const float> input;  // [rows, key_columns]
  int key_columns = 0;
  std::span<const AttentionRowKeys> rows;    // [rows], host memory
  DeviceSpan<const float> log_sum_exp = {};  // [rows]; needed by `stats`

  DeviceSpan<float> stats = {};  // [rows, kAttentionStats]

  int top_k = 0;
  DeviceSpan<uint32_t> top_keys = {};  // [rows, top_k], largest first, lowest key on a tie
  DeviceSpan<float> top_values = {};   // [rows, top_k]
  DeviceSpan<float> tail_mass = {};    // [rows], sum of the weights left out

  // Span s adds up the keys of ranges [span_begin[s], span_begin[s + 1]), which are disjoint.
  std::span<const KeyRange> span_ranges = {};  // Host memory.
  std::span<const int32_t> span_begin = {};    // [spans + 1], host memory
  DeviceSpan<float> span_mass = {};            // [rows, spans]
};

}  // namespace vitrine
