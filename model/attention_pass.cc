#include "model/attention_pass.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace vitrine {
namespace {

// Makes result `index`, of weights that add up to `sum`, that of weights that add up to 1.
void DivideResult(const AttentionPass& pass, size_t index, float sum, float* memory) {
  const AttentionPlan& plan = *pass.plan;
  const float factor = 1.0f / sum;
  const auto scale = [&](size_t begin, size_t per_result, size_t count) {
    float* const numbers = memory + begin + index * per_result;
    for (size_t i = 0; i < count; ++i) numbers[i] *= factor;
  };
  const auto top_k = static_cast<size_t>(plan.top_k);
  const auto keys = static_cast<size_t>(pass.piece.key_columns);
  scale(pass.top_values, top_k, top_k);
  scale(pass.tail_mass, top_k > 0 ? 1 : 0, top_k > 0 ? 1 : 0);
  scale(pass.span_mass, pass.span_begin.size() - 1, static_cast<size_t>(plan.spans()));
  scale(pass.values, keys, plan.wants_rows ? keys : 0);
  if (!plan.wants_stats) return;
  // Log-sum-exp, entropy, largest weight, its key, self, first, mean distance, visible keys: with
  // w' = w / S, ln w' = ln w - ln S.
  float* const stats = memory + pass.stats + index * kAttentionStats;
  const float log_sum = std::log(sum);
  stats[0] += log_sum;
  stats[1] = stats[1] * factor + log_sum;
  for (const int linear : {2, 4, 5, 6}) stats[linear] *= factor;
}

}  // namespace

size_t PlaceResults(AttentionPass& pass, size_t begin) {
  const AttentionPlan& plan = *pass.plan;
  const size_t results = pass.results();
  size_t end = begin;
  const auto place = [&](size_t per_result) {
    return std::exchange(end, end + results * per_result);
  };
  const auto top_k = static_cast<size_t>(plan.top_k);
  pass.stats = place(plan.wants_stats ? kAttentionStats : 0);
  pass.top_keys = place(top_k);
  pass.top_values = place(top_k);
  pass.tail_mass = place(top_k > 0 ? 1 : 0);
  pass.span_mass = place(pass.span_begin.empty() ? 0 : pass.span_begin.size() - 1);
  pass.values = place(plan.wants_rows ? static_cast<size_t>(pass.piece.key_columns) : 0);
  pass.row_sums = end;
  return pass.sums_in_spans ? end : end + pass.items.size();
}

AttentionPiece CollectPiece(const AttentionPass& pass, const RowSumRule& rule,
                            const std::shared_ptr<float[]>& memory) {
  const AttentionPlan& plan = *pass.plan;
  const size_t results = pass.results();
  AttentionPiece piece = pass.piece;
  piece.memory = memory;
  const auto at = [&](size_t begin, size_t per_result) {
    return std::span<const float>(memory.get() + begin, results * per_result);
  };
  const auto top_k = static_cast<size_t>(plan.top_k);
  if (plan.wants_stats) piece.stats = at(pass.stats, kAttentionStats);
  if (top_k > 0) {
    // The area holds 32-bit words; these were written as integers.
    piece.top_keys = {reinterpret_cast<const uint32_t*>(memory.get() + pass.top_keys),
                      results * top_k};
    piece.top_values = at(pass.top_values, top_k);
    if (plan.stage == AttentionStage::kWeights) piece.tail_mass = at(pass.tail_mass, 1);
  }
  if (plan.wants_rows) piece.values = at(pass.values, static_cast<size_t>(piece.key_columns));
  const auto spans = static_cast<size_t>(plan.spans());
  const size_t stride = spans + (pass.sums_in_spans ? 1 : 0);
  const size_t sums = pass.sums_in_spans ? results : pass.items.size();
  for (size_t i = 0; i < sums; ++i) {
    float sum = pass.sums_in_spans ? memory[pass.span_mass + i * stride + spans]
                                   : memory[pass.row_sums + i];
    piece.max_lse_delta = std::max(piece.max_lse_delta, std::abs(std::log(sum)));
    if (pass.sums_in_spans && rule.divides) {
      DivideResult(pass, i, sum, memory.get());
      sum *= 1.0f / sum;
    }
    piece.max_row_sum_error = std::max(piece.max_row_sum_error, std::abs(sum - 1.0f));
  }
  if (!rule.lse_deltas.empty()) {
    // The sums are those of normalised rows; the deltas are what normalising changed.
    for (const int32_t id : pass.log_sum_exp_ids) {
      const float delta = std::abs(rule.lse_deltas[static_cast<size_t>(id)]);
      piece.max_lse_delta = std::max(piece.max_lse_delta, delta);
    }
  }
  if (spans == 0) return piece;
  // Without the sums that ride behind them.
  for (size_t i = 0; i < results; ++i) {
    std::copy_n(memory.get() + pass.span_mass + i * stride, spans,
                memory.get() + pass.span_mass + i * spans);
  }
  piece.span_mass = at(pass.span_mass, spans);
  return piece;
}

void CollectPieces(const AttentionPass& pass, const RowSumRule& rule, const float* memory,
                   std::vector<AttentionPiece>& pieces) {
  const size_t layers = pass.plan->layers.size();
  const size_t heads = pass.plan->heads.size();
  const auto top_k = static_cast<size_t>(pass.plan->top_k);
  for (size_t i = 0; i < pass.single_rows.size(); ++i) {
    const AttentionPass::SingleRow& row = pass.single_rows[i];
    AttentionPass own;
    own.plan = pass.plan;
    own.piece = pass.piece;
    own.piece.trace = row.trace;
    own.piece.first_position = row.position;
    own.piece.key_columns = row.position + 1;
    own.piece.share = static_cast<double>(layers * heads) * own.piece.key_columns;
    own.keys.resize(layers * heads);
    own.span_begin = pass.span_begin;
    own.sums_in_spans = pass.sums_in_spans;
    const std::shared_ptr<float[]> own_memory(new float[PlaceResults(own, 0)]);
    const auto copy = [&](size_t from, size_t to, size_t per_result) {
      for (size_t layer = 0; layer < layers; ++layer) {
        const size_t first = (layer * pass.single_rows.size() + i) * heads;
        std::copy_n(memory + from + first * per_result, heads * per_result,
                    own_memory.get() + to + layer * heads * per_result);
      }
    };
    copy(pass.stats, own.stats, pass.plan->wants_stats ? kAttentionStats : 0);
    copy(pass.top_keys, own.top_keys, top_k);
    copy(pass.top_values, own.top_values, top_k);
    copy(pass.tail_mass, own.tail_mass, top_k > 0 ? 1 : 0);
    copy(pass.span_mass, own.span_mass, pass.span_begin.size() - 1);
    pieces.push_back(CollectPiece(own, rule, own_memory));
  }
}

}  // namespace vitrine
