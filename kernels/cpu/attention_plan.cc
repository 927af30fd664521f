#include "kernels/cpu/attention_plan.h"

#include <algorithm>

namespace vitrine::cpu {
namespace {

// Fewer tiles than this per worker are cut by segments as well.
constexpr int kTilesPerWorker = 4;

int64_t Cost(const AttentionUnit& unit) {
  return int64_t{unit.end_segment - unit.first_segment} * unit.rows();
}

}  // namespace

void AttentionPlan::Build(const AttentionShape& shape, int workers) {
  shape_ = shape;
  units_.clear();
  counter_starts_.clear();
  results_ = 0;
  stride_ = static_cast<size_t>(SegmentResult::Floats((shape.head_dim + 15) / 16 * 16));
  for (int s = 0; s < shape.batch->sequences(); ++s) AddSequence(s, workers);

  const size_t floats = static_cast<size_t>(results_) * stride_;
  if (partials_.size() < floats) partials_.resize(floats);
  const int counters = static_cast<int>(counter_starts_.size());
  if (counter_capacity_ < counters) {
    counter_capacity_ = 2 * counters;
    counters_ = std::make_unique<std::atomic<int>[]>(static_cast<size_t>(counter_capacity_));
  }
  for (int c = 0; c < counters; ++c) {
    counters_[c].store(counter_starts_[static_cast<size_t>(c)], std::memory_order_relaxed);
  }
  // The long ones first. Ties keep their order: neighbours then read neighbouring pages.
  std::sort(units_.begin(), units_.end(), [](const AttentionUnit& a, const AttentionUnit& b) {
    if (Cost(a) != Cost(b)) return Cost(a) > Cost(b);
    if (a.first_row != b.first_row) return a.first_row < b.first_row;
    if (a.first_head != b.first_head) return a.first_head < b.first_head;
    return a.first_segment < b.first_segment;
  });
}

void AttentionPlan::AddSequence(int sequence, int workers) {
  const PagedBatch& batch = *shape_.batch;
  const auto index = static_cast<size_t>(sequence);
  const int begin = batch.row_begin[index];
  const int end = batch.row_begin[index + 1];
  const int group = shape_.num_heads / shape_.num_kv_heads;
  const int heads_at_once = std::min(group, kUnitRows);
  const int tile_tokens = std::clamp(kUnitRows / heads_at_once, 1, kUnitTokens);
  const int tiles = (end - begin + tile_tokens - 1) / tile_tokens;
  const bool by_segment =
      end - begin == 1 || tiles * shape_.num_kv_heads < kTilesPerWorker * workers;
  for (int row = begin; row < end; row += tile_tokens) {
    AttentionUnit unit = {};
    unit.sequence = sequence;
    unit.first_row = row;
    unit.first_position = batch.first_position[index] + row - begin;
    unit.tokens = std::min(tile_tokens, end - row);
    for (int kv_head = 0; kv_head < shape_.num_kv_heads; ++kv_head) {
      unit.kv_head = kv_head;
      for (int head = 0; head < group; head += heads_at_once) {
        unit.first_head = kv_head * group + head;
        unit.heads = std::min(heads_at_once, group - head);
        AddTile(unit, by_segment);
      }
    }
  }
}

void AttentionPlan::AddTile(AttentionUnit unit, bool by_segment) {
  const int first_key =
      shape_.window == 0 ? 0 : std::max(0, unit.first_position - shape_.window + 1);
  const int first = first_key / kAttentionSegmentKeys;
  const int end = (unit.first_position + unit.tokens - 1) / kAttentionSegmentKeys + 1;
  unit.first_segment = first;
  unit.end_segment = end;
  unit.parts = by_segment ? end - first : 1;
  if (unit.parts == 1) {
    unit.first_result = -1;
    units_.push_back(unit);
    return;
  }
  unit.counter = static_cast<int>(counter_starts_.size());
  counter_starts_.push_back(unit.parts);
  for (int segment = first; segment < end; ++segment) {
    unit.first_segment = segment;
    unit.end_segment = segment + 1;
    unit.first_result = results_;
    results_ += unit.rows();
    units_.push_back(unit);
  }
}

bool AttentionPlan::FinishPart(const AttentionUnit& unit) {
  std::atomic<int>& pending = counters_[unit.counter];
  if (pending.fetch_sub(1, std::memory_order_acq_rel) > 1) return false;
  pending.store(unit.parts, std::memory_order_relaxed);
  return true;
}

}  // namespace vitrine::cpu
