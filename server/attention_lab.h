// The attention lab: one head on a handful of tokens, every step of it visible, computed by the
// reference ops that every other backend is tested against.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace vitrine::server {

inline constexpr int kMaxLabTokens = 64;
inline constexpr int kMaxLabColumns = 512;
// Largest |score| that any q and k of the input could reach, scaled or not. Beyond it the float32
// log-sum-exp is too coarse for weights.
inline constexpr double kMaxLabScore = 10'000;

// Row-major.
struct LabMatrix {
  int rows = 0;
  int columns = 0;
  std::vector<float> values;  // [rows, columns]

  float at(int row, int column) const {
    return values[static_cast<size_t>(row) * static_cast<size_t>(columns) +
                  static_cast<size_t>(column)];
  }
};

struct LabInput {
  std::vector<std::string> tokens;
  LabMatrix q;          // [tokens, d]
  LabMatrix k;          // [tokens, d]
  LabMatrix v;          // [tokens, d of the values]
  float scale = 1.0f;   // Multiplies q.k.
  bool causal = false;  // Token i sees tokens 0..i only.
};

struct LabRow {
  float log_sum_exp = 0;      // Natural log, of the scaled scores.
  float entropy = 0;          // Nats.
  float uniform_entropy = 0;  // ln(visible keys): what equal weights would have.
  float max_weight = 0;
  int top_key = 0;  // The first one on a tie.
  int visible_keys = 0;
};

struct LabResult {
  LabMatrix scores;          // [tokens, tokens]: q.k, before scale and mask
  LabMatrix scaled;          // [tokens, tokens]: -infinity where masked
  LabMatrix weights;         // [tokens, tokens]
  LabMatrix output;          // [tokens, columns of v]
  LabMatrix uniform_output;  // [tokens, columns of v]: the mean of the visible values
  std::vector<LabRow> rows;
};

// 1 / sqrt(d).
float DefaultScale(int d);

// INVALID_ARGUMENT names what has the wrong shape or is too large.
absl::StatusOr<LabResult> RunLab(const LabInput& input);

// What the softmax does to random q and k of d columns, on average.
struct Saturation {
  double entropy = 0;     // Nats.
  double max_weight = 0;  // Of a row.
  double gradient = 0;    // Sum of w (1 - w): how far the weights still follow the scores.
};

struct SweepRow {
  int d = 0;
  Saturation scaled;    // Scores times 1 / sqrt(d).
  Saturation unscaled;  // The scores themselves.
};

inline constexpr int kSweepKeys = 16;

// d = 1, 2, 4, ... 512; elements from a normal distribution, always the same ones (Vaswani et al.,
// 2017, section 3.2.1: the variance of q.k is d, so without the scale the softmax saturates).
absl::StatusOr<std::vector<SweepRow>> SweepColumns();

}  // namespace vitrine::server
