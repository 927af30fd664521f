#pragma once

#include <cstdint>
#include <span>

#include "kernels/device_span.h"

namespace vitrine {

// How one row draws its token. Validated by the caller: temperature >= 0 and finite, top_k >= 0,
// 0 < typical_p, top_p <= 1, 0 <= min_p < 1.
struct SampleRow {
  float temperature = 0.0f;  // 0 (below 2^-60): the largest logit, the lowest id on a tie
  int32_t top_k = 0;         // 0: off; tokens tied with the k-th stay
  float typical_p = 1.0f;    // of what top_k left, the tokens whose surprise is nearest to the
                             // entropy, with at least this mass; ties stay; 1: off
  float top_p = 1.0f;        // of what typical_p left, smallest set with at least this mass; 1: off
  float min_p = 0.0f;        // of what top_p left, relative to the most likely token; 0: off
  uint64_t seed = 0;
  uint32_t choice = 0;   // Which of a request's answers; part of the random counter.
  int64_t position = 0;  // Of the token to be drawn; part of the random counter.
  int32_t adjusted_row =
      -1;  // Row of SampleArgs::adjusted to draw from; -1: the row of the logits.

  bool operator==(const SampleRow&) const = default;
};

// Up to this many tokens sums of weights stay below 2^63.
inline constexpr int kMaxSampleVocabulary = 1 << 22;

// A row whose logits hold NaN or +inf, or nothing above -inf, gets this instead of a token.
inline constexpr int32_t kNoToken = -1;

// Draws one token per row: temperature, top-k, typical (Meister et al. 2022), top-p, min-p, draw.
// The draw is a function of (logits of the row, SampleRow) alone: weights are integers (multiples
// of 2^-40 of the largest), so that no order of summation changes a result, and the random bits
// are Philox4x32-10 of (seed; position, choice), see philox.h.
struct SampleArgs {
  DeviceSpan<const float> logits;         // [rows, vocabulary]
  DeviceSpan<const float> adjusted = {};  // [adjusted rows, vocabulary], see AdjustLogits
  std::span<const SampleRow> rows;        // [rows], host memory
  int vocabulary = 0;
  DeviceSpan<int32_t> token_ids;  // [rows]

  // What `rows[row]` draws from.
  const float* SourceOf(size_t row) const {
    const int32_t adjusted_row = rows[row].adjusted_row;
    return adjusted_row < 0 ? logits.data() + row * static_cast<size_t>(vocabulary)
                            : adjusted.data() + static_cast<size_t>(adjusted_row) *
                                                    static_cast<size_t>(vocabulary);
  }
};

}  // namespace vitrine
