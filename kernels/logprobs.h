#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/device_span.h"
#include "kernels/sample.h"

namespace vitrine {

inline constexpr int kMaxTopLogprobs = 20;

// Which token's log-probability is wanted, in which distribution.
struct LogprobsRow {
  int32_t row = 0;        // Of the logits.
  int32_t token_id = -1;  // -1: the token drawn for the row.
  int32_t top_count = 0;  // Most probable alternatives to report, 0 .. kMaxTopLogprobs.
  bool is_processed =
      false;  // In the distribution that the row was drawn from, not the model's own.
};

// A distribution at one token, such that the logarithm alone is left to the host. Logits are those
// of the distribution: the model's, or the adjusted ones. The distribution is that of the integer
// weights of sampling_math.h, whose sum has no order: the same bits on every backend.
struct LogprobsResult {
  float top_logit = 0.0f;
  float temperature = 1.0f;
  uint64_t total_weight = 0;  // Of all tokens; the most likely one of a row weighs 2^40.
  float logit = 0.0f;         // Of the token.
  int32_t rank = 0;           // From 1, behind what is more probable; equals in order of ids.
  int32_t top_count = 0;      // Entries below; fewer than asked for where fewer can be drawn.
  int32_t top_ids[kMaxTopLogprobs] = {};  // The most probable first.
  float top_logits[kMaxTopLogprobs] = {};

  double Logprob(float of_logit) const {
    constexpr double kTopWeight = 0x1p40;
    return (static_cast<double>(of_logit) - static_cast<double>(top_logit)) /
               static_cast<double>(temperature) -
           std::log(static_cast<double>(total_weight) / kTopWeight);
  }
};

// Log-probabilities of one token per row. Processed rows at temperature 0 have a single token of
// probability 1. A row that Sample gives no token has a result without meaning.
struct LogprobsArgs {
  DeviceSpan<const float> logits;            // [logit rows, vocabulary]
  DeviceSpan<const float> adjusted = {};     // As of Sample.
  std::span<const SampleRow> sampling = {};  // [logit rows], as of Sample; for processed rows.
  DeviceSpan<const int32_t> token_ids = {};  // [logit rows], what Sample drew.
  std::span<const LogprobsRow> rows;         // [rows], host memory
  int vocabulary = 0;
  DeviceSpan<LogprobsResult> output;  // [rows]

  // For backends whose memory is the host's.
  std::span<const float> LogitsOf(const LogprobsRow& row) const {
    const auto size = static_cast<size_t>(vocabulary);
    const int32_t adjusted_row = SamplingOf(row).adjusted_row;
    if (adjusted_row < 0) return {logits.data() + static_cast<size_t>(row.row) * size, size};
    return {adjusted.data() + static_cast<size_t>(adjusted_row) * size, size};
  }
  int32_t TokenOf(const LogprobsRow& row) const {
    return row.token_id >= 0 ? row.token_id : token_ids.data()[row.row];
  }
  SampleRow SamplingOf(const LogprobsRow& row) const {
    return row.is_processed ? sampling[static_cast<size_t>(row.row)] : SampleRow();
  }
};

}  // namespace vitrine
