// What one forward step computes: a ragged batch of several sequences with several tokens each,
// prompt chunks and single decode tokens alike. Structure of arrays, reused from step to step.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/adjust_logits.h"
#include "kernels/logprobs.h"
#include "kernels/paged_batch.h"
#include "kernels/sample.h"
#include "model/attention_plan.h"

namespace vitrine {

using TokenId = int32_t;

struct Batch {
  std::vector<TokenId> token_ids;        // [rows], or DrawnToken where a step runs ahead
  std::vector<int32_t> row_begin = {0};  // [sequences + 1]
  std::vector<int32_t> first_position;   // [sequences]
  std::vector<int32_t> block_table;      // [sequences, max_blocks]
  int max_blocks = 0;
  std::vector<int32_t> sampled_rows;  // [samples], rows whose next token is drawn, ascending
  std::vector<SampleRow> sampling;    // [samples]
  // Of samples: row of an adjustment is the index of its sample, and adjusted_row of that sample is
  // the index of the adjustment.
  std::vector<LogitAdjustment> adjustments;
  std::vector<LogprobsRow> logprobs;  // Of samples, ascending; row is the index of the sample.

  // Prompt rows whose successor is scored: row is the row of the batch, token_id the token that
  // follows it, is_processed false. Ascending.
  std::vector<LogprobsRow> scored;

  std::vector<TracedRows> traces;       // Rows whose attention is wanted, ascending.
  std::vector<int32_t> certified_rows;  // Rows whose log-sum-exp is wanted.

  // Sequences that decode and mean to go on with the token they draw, ascending. Their tables name
  // the block of that token too, which is theirs alone.
  std::vector<int32_t> continuing;

  int rows() const { return static_cast<int>(token_ids.size()); }
  int sequences() const { return static_cast<int>(first_position.size()); }
  PagedBatch paged() const { return {row_begin, first_position, block_table, max_blocks}; }
  void Clear() {
    token_ids.clear();
    row_begin.assign(1, 0);
    first_position.clear();
    block_table.clear();
    sampled_rows.clear();
    sampling.clear();
    adjustments.clear();
    logprobs.clear();
    scored.clear();
    traces.clear();
    certified_rows.clear();
    continuing.clear();
  }
};

}  // namespace vitrine
