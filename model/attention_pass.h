// One pass of AttentionReader: the host arrays of its ops, where its results lie in the output
// area, and how they become pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/attention_plan.h"

namespace vitrine {

// A rectangle of cells of some rows of one run; or of the single rows of several runs.
struct AttentionPass {
  // A run whose single row is part of the pass.
  struct SingleRow {
    int trace = 0;  // Index in Batch::traces.
    int position = 0;
    int row = 0;  // Of the batch.
  };

  const AttentionPlan* plan = nullptr;
  AttentionPiece piece;                     // Of several runs: what they have in common.
  std::vector<SingleRow> single_rows;       // Empty where the pass is of one run.
  int members = 1;                          // Rows that become one.
  std::vector<AttentionItem> items;         // [results, members]
  std::vector<AttentionRowKeys> item_keys;  // [results, members]
  // [results]: [layers, heads, rows], or [layers, single rows, heads].
  std::vector<AttentionRowKeys> keys;
  std::vector<int32_t> log_sum_exp_ids;  // [results, members], of single rows within their layer
  std::vector<KeyRange> span_ranges;     // The plan's, then all keys where that is the sum.
  std::vector<int32_t> span_begin;
  bool sums_in_spans = false;  // The sum of a row is its last span.
  bool is_inner = false;       // Leaves rows with their heads reduced, for the pass that goes on.

  // Places in the output area, in floats.
  size_t stats = 0;
  size_t top_keys = 0;
  size_t top_values = 0;
  size_t tail_mass = 0;
  size_t span_mass = 0;
  size_t row_sums = 0;
  size_t values = 0;
  size_t results() const { return keys.size(); }
  // Single rows per layer times heads; 0 where the pass is of one run.
  size_t results_per_layer() const { return single_rows.size() * plan->heads.size(); }
};

// Gives the results places from `begin` on; returns where they end.
size_t PlaceResults(AttentionPass& pass, size_t begin);

// The log of the sum that each row was divided by before the pass, by log_sum_exp_ids; empty: none.
// `divides`: results of single rows are divided by the rows' sums here.
struct RowSumRule {
  bool divides = false;
  std::span<const float> lse_deltas;
};

// The results of a pass of one run, whose output area is on the host at `memory`.
AttentionPiece CollectPiece(const AttentionPass& pass, const RowSumRule& rule,
                            const std::shared_ptr<float[]>& memory);

// The same for a pass of several runs, in the order of its single rows.
void CollectPieces(const AttentionPass& pass, const RowSumRule& rule, const float* memory,
                   std::vector<AttentionPiece>& pieces);

}  // namespace vitrine
