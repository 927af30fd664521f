// What is computed of the attention of traced rows, and what comes out: native, no wire types.
//
// A result has a layer axis and a head axis. A cell of it is one pair of these; it stands for one
// head of one layer, or for all those that the plan reduces to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/attention_reduce.h"
#include "kernels/attention_rows.h"

namespace vitrine {

// Fixed before the first step of a request and shared by all its rows.
struct AttentionPlan {
  // Layers times heads; or, paired, layers[i] with heads[i]: then the layer axis has length 1.
  std::vector<int32_t> layers;
  std::vector<int32_t> heads;  // Query heads.
  bool is_paired = false;
  std::optional<AttentionCombine> reduce_layers;  // Not with is_paired.
  std::optional<AttentionCombine> reduce_heads;   // Before the layers.
  AttentionStage stage = AttentionStage::kWeights;

  bool wants_stats = false;  // Weights only, as span masses.
  int top_k = 0;             // 0: not wanted.
  std::vector<KeyRange> top_ranges;
  std::vector<KeyRange> span_ranges;
  std::vector<int32_t> span_begin;  // [spans + 1]; empty: not wanted.
  bool wants_rows = false;          // Every number of the combined row.

  friend bool operator==(const AttentionPlan&, const AttentionPlan&) = default;

  int layer_axis() const {
    return is_paired || reduce_layers.has_value() ? 1 : static_cast<int>(layers.size());
  }
  int head_axis() const { return reduce_heads.has_value() ? 1 : static_cast<int>(heads.size()); }
  int64_t cells() const { return int64_t{layer_axis()} * head_axis(); }
  int spans() const { return span_begin.empty() ? 0 : static_cast<int>(span_begin.size()) - 1; }
};

// Consecutive rows of one sequence of a step whose attention is wanted.
struct TracedRows {
  int32_t sequence = 0;                 // Of the batch.
  int32_t first_row = 0;                // Of the batch.
  int32_t rows = 0;                     // At least 1.
  const AttentionPlan* plan = nullptr;  // Outlives the step.
};

// Results of some traced rows for a rectangle of cells. All arrays begin [layers, heads, rows, ...]
// and are empty where the plan does not want them.
struct AttentionPiece {
  int trace = 0;  // Index in Batch::traces.
  int first_position = 0;
  int rows = 0;
  int first_layer = 0;  // On the axes of the plan.
  int layers = 0;
  int first_head = 0;
  int heads = 0;
  int key_columns = 0;  // first_position + rows.

  std::span<const float> stats;        // [..., kAttentionStats]
  std::span<const uint32_t> top_keys;  // [..., top_k]
  std::span<const float> top_values;   // [..., top_k]
  std::span<const float> tail_mass;    // [...]; weights only
  std::span<const float> span_mass;    // [..., spans]
  std::span<const float> values;       // [..., key_columns]

  float max_row_sum_error = 0.0f;  // Of the single rows, before any reduction.
  float max_lse_delta = 0.0f;      // Nats; log of the same sums.
  double share = 0.0;              // Of the work of the whole step.

  std::shared_ptr<const float[]> memory;  // Holds the arrays; shared by pieces.
  size_t bytes() const {
    return sizeof(float) * (stats.size() + top_keys.size() + top_values.size() + tail_mass.size() +
                            span_mass.size() + values.size());
  }
};

}  // namespace vitrine
