// Splits the attention of a step into units that workers take one by one.
//
// Keys are taken in segments of 256 at absolute positions. A segment is reduced on its own (largest
// score, sum of weights, weighted sum of values) and segments are merged in ascending order. A unit
// either walks all segments of its rows itself, or is one segment of them, merged by whoever
// finishes last: the arithmetic of a row is the same, bit for bit, and so is the arithmetic after
// any chunking of a prompt.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/buffer.h"
#include "kernels/paged_attention.h"

namespace vitrine::cpu {

inline constexpr int kSegmentPages = kAttentionSegmentKeys / kKvBlockTokens;
inline constexpr int kMaxKernelRows = 6;  // Query rows that share one pass over the keys.
inline constexpr int kUnitRows = 64;      // Query rows (token and head) of a unit.
inline constexpr int kUnitTokens = 16;
inline constexpr int kMaxResultFloats = 256 + 16;

// The reduction of one segment: [padded head_dim] weighted values, then the largest score in units
// of log2, then the weight sum; padded to a cache line.
struct SegmentResult {
  float* data;
  int padded_dim;

  float& maximum() const { return data[padded_dim]; }
  float& weight_sum() const { return data[padded_dim + 1]; }
  static int Floats(int padded_dim) { return padded_dim + 16; }
};

// Private memory of a worker; rows are as long as head_dim asks for.
struct alignas(64) AttentionScratch {
  float scores[kMaxKernelRows][kAttentionSegmentKeys + 16];
  float weights[kMaxKernelRows][kAttentionSegmentKeys];  // f32, or bf16 in the first half.
  float segment[kMaxKernelRows * kMaxResultFloats];
  float queries[kUnitRows * 256];
  float totals[kUnitRows * kMaxResultFloats];
};

struct AttentionUnit {
  int sequence;
  int first_row;
  int first_position;
  int tokens;
  int kv_head;
  int first_head;  // Query heads.
  int heads;
  int first_segment;
  int end_segment;
  int first_result;  // Of this unit's partial results; -1 for a unit that does it all.
  int counter;       // Of the unfinished units of the same rows.
  int parts;         // Units of the same rows; their partial results are adjacent.

  int rows() const { return tokens * heads; }
};

// What a plan depends on, beside the batch.
struct AttentionShape {
  const PagedBatch* batch = nullptr;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int window = 0;

  bool operator==(const AttentionShape&) const = default;
};

// Built by one thread, then run by many. Memory is kept from one step to the next.
class AttentionPlan {
 public:
  void Build(const AttentionShape& shape, int workers);

  const AttentionShape& shape() const { return shape_; }
  const std::vector<AttentionUnit>& units() const { return units_; }
  float* partial(int result) { return partials_.data() + static_cast<size_t>(result) * stride_; }

  // True for the caller that finishes the last unit of its rows; the counter is then ready for the
  // next layer.
  bool FinishPart(const AttentionUnit& unit);

 private:
  void AddSequence(int sequence, int workers);
  void AddTile(AttentionUnit unit, bool by_segment);

  AttentionShape shape_;
  std::vector<AttentionUnit> units_;
  std::vector<float> partials_;
  size_t stride_ = 0;
  int results_ = 0;
  std::unique_ptr<std::atomic<int>[]> counters_;
  int counter_capacity_ = 0;
  std::vector<int> counter_starts_;
};

}  // namespace vitrine::cpu
