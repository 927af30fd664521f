#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "kernels/buffer.h"
#include "kernels/paged_batch.h"

namespace vitrine {

// One row of attention: what query head `head` of layer `layer` saw for row `row` of the step.
struct AttentionItem {
  int32_t row = 0;  // Of the batch.
  int32_t layer = 0;
  int32_t head = 0;  // Query head.
};

enum class AttentionStage {
  kWeights,  // exp(s_j - L): after the softmax; a row sums to 1 (less with learned sinks)
  kScores,   // s_j: scaled, after softcap and ALiBi, natural-log units
};

// Recomputes exact attention rows from what PagedAttention left behind: the queries it read, the
// cached keys (through the block table, so cached prefixes and earlier chunks included) and each
// row's natural-log log-sum-exp L. With s_j as in paged_attention.h:
//   output[i, j] = exp(s_j - L), or s_j; 0, or -infinity, for keys the row does not see.
// Runs behind the attention of a layer, or at the end of a step for several.
struct AttentionRowsArgs {
  DeviceSpan<const float> q;            // [slices, row_capacity, num_heads, head_dim], rotated
  DeviceSpan<const float> log_sum_exp;  // [slices, row_capacity, num_heads]
  int row_capacity = 0;                 // Rows of one layer's slice of q and log_sum_exp.
  int first_layer = 0;                  // The layer of their first slice.
  const PagedBatch* batch = nullptr;
  const KvStorage* kv = nullptr;
  int num_heads = 0;
  float scale = 1.0f;
  float softcap = 0.0f;                       // 0: none
  std::span<const int32_t> windows = {};      // [layers], host memory; 0: none. Empty: no windows.
  DeviceSpan<const float> alibi_slopes = {};  // [num_heads], or empty
  std::span<const AttentionItem> items;       // Host memory.
  AttentionStage stage = AttentionStage::kWeights;
  int key_columns = 0;       // Columns of output; more than the largest position of any item.
  DeviceSpan<float> output;  // [items, key_columns]; column j is the key at position j

  // Where q and log_sum_exp hold the numbers of an item: [slices * row_capacity * num_heads].
  int64_t IndexOf(const AttentionItem& item) const {
    return (int64_t{item.layer - first_layer} * row_capacity + item.row) * num_heads + item.head;
  }
};

}  // namespace vitrine
