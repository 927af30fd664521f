// A trace as a file, for notebooks and spreadsheets.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "client/attention_assembly.h"
#include "client/sequence_tokens.h"
#include "vitrine/v1/attention.pb.h"

namespace vitrine::client {

// Numpy arrays by name. Data, float32, axes [layer, head, query, last]: dense, stats, top_k_weights
// with top_k_keys and top_k_tail_mass, span_mass, column_sum, tile. Axes: layers, heads or pairs
// [heads, 2], choices, query_positions, predicts_positions, and per output key_positions,
// statistic_names, span_names, column_sum_keys, tile_first_keys. Tokens: token_ids, token_bytes,
// prompt_tokens. Origin: request_id, stage, method, kv_dtype, numerics, max_row_sum_error,
// max_lse_delta.
absl::Status WriteNpz(const AttentionTrace& trace, const SequenceTokens& tokens,
                      const v1::AttentionSpec& spec, const std::string& path);

// A line per number: output, layer, head, choice, query, what the last axis says, the tokens of
// both, value. Reduced axes say "reduced".
absl::Status WriteCsv(const AttentionTrace& trace, const SequenceTokens& tokens,
                      const v1::AttentionSpec& spec, const std::string& path);

}  // namespace vitrine::client
