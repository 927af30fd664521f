#pragma once

#include <cstdint>
#include <span>

#include "kernels/device_span.h"

namespace vitrine {

// How one row draws its token. Validated by the caller: temperature >= 0 and finite, top_k >= 0,
// 0 < top_p <= 1, 0 <= min_p < 1.
struct SampleRow {
  float temperature = 0.0f;  // 0 (below 2^-60): the largest logit, the lowest id on a tie
  int32_t top_k = 0;         // 0: off; tokens tied with the k-th stay
  float top_p = 1.0f;        // of what top_k left, smallest set with at least this mass; 1: off
  float min_p = 0.0f;        // of what top_p left, relative to the most likely token; 0: off
  uint64_t seed = 0;
  uint32_t choice = 0;   // Which of a request's answers; part of the random counter.
  int64_t position = 0;  // Of the token to be drawn; part of the random counter.
};

// A row whose logits hold NaN or +inf, or nothing above -inf, gets this instead of a token.
inline constexpr int32_t kNoToken = -1;

// Draws one token per row: temperature, top-k, top-p, min-p, draw. The draw is a function of
// (logits of the row, SampleRow) alone: weights are integers (multiples of 2^-40 of the largest),
// so that no order of summation changes a result, and the random bits are Philox4x32-10 of
// (seed; position, choice), see philox.h.
struct SampleArgs {
  DeviceSpan<const float> logits;   // [rows, vocabulary]
  std::span<const SampleRow> rows;  // [rows], host memory
  int vocabulary = 0;
  DeviceSpan<int32_t> token_ids;  // [rows]
};

}  // namespace vitrine
