// Attention as a picture in a terminal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/attention_assembly.h"
#include "client/heat_scale.h"
#include "client/sequence_tokens.h"
#include "vitrine/v1/attention.pb.h"

namespace vitrine::client {

enum class AttentionView {
  kStrip,   // Each token over the text that it looked at; DENSE or TOP_K.
  kGrid,    // Layers x heads of one token, a statistic each; STATS.
  kMatrix,  // Queries x keys; DENSE or TOP_K.
  kSpans,   // Tokens x named spans; SPAN_MASS.
  kNone,
};

// In the order of the statistics on the wire.
enum class AttentionStatistic {
  kLogSumExp,
  kEntropy,
  kMax,
  kTop,
  kSelf,
  kFirst,
  kDistance,
  kVisible,
};

struct AttentionViewOptions {
  AttentionView view = AttentionView::kStrip;
  AttentionStatistic statistic = AttentionStatistic::kEntropy;
  std::optional<int64_t> token = {};  // Query position, from the end when negative; none: all.
  uint32_t choice = 0;
  bool hide_sink = true;  // Key 0, which takes much weight and tells little (Xiao et al., 2023).
  bool log_scale = false;
  bool combine_max = false;  // Of heads and layers that came apart: the largest, else the mean.
  HeatStyle style;
};

// Several lines: what is shown, the picture, its scale, and what vouches for the numbers.
// FAILED_PRECONDITION when the trace lacks what the view draws, or has no such token.
absl::StatusOr<std::string> DrawAttention(const AttentionTrace& trace, const SequenceTokens& tokens,
                                          const v1::AttentionSpec& spec,
                                          const AttentionViewOptions& options);

}  // namespace vitrine::client
