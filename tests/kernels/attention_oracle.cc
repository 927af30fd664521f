#include "tests/kernels/attention_oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace vitrine::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Bounded Score(double operand_rounding, const AttentionOptions& options, std::span<const float> q,
              std::span<const float> k) {
  double dot = 0;
  double magnitude = 0;
  for (size_t d = 0; d < q.size(); ++d) {
    dot += double{q[d]} * k[d];
    magnitude += std::fabs(double{q[d]} * k[d]);
  }
  const double scale = options.scale;
  Bounded score{scale * dot, 0};
  // Sum over head_dim, the scale, and a factor log2(e) that a backend may fold into it.
  const double relative = operand_rounding + (static_cast<double>(q.size()) + 4) * kF32Rounding;
  score.error = std::fabs(scale) * magnitude * relative;
  if (options.softcap != 0.0f) {
    score.value = options.softcap * std::tanh(score.value / options.softcap);
    score.error += 8 * kF32Rounding * std::fabs(options.softcap);  // tanh has slope 1 at most.
  }
  return score;
}

// The score with ALiBi's bias for a key that is `distance` (at most 0) away.
Bounded WithBias(Bounded score, const AttentionOptions& options, int head, int distance) {
  if (!options.alibi_slopes.empty()) {
    const double bias = double{options.alibi_slopes[static_cast<size_t>(head)]} * distance;
    score.value += bias;
    score.error += 3 * kF32Rounding * (std::fabs(bias) + std::fabs(score.value));
  }
  // Differences to the maximum are formed in f32, perhaps in units of log 2.
  score.error += 4 * kF32Rounding * std::fabs(score.value);
  return score;
}

// Rounds values to int8 with one scale, and back.
void RoundToInt8(std::span<float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
  const float scale = largest * (1.0f / 127.0f);
  for (float& value : values) value = std::nearbyint(value * inverse) * scale;
}

// An upper bound of |exp(x) - 1| for |x| <= e.
double ExpError(double e) { return std::expm1(e); }

}  // namespace

double OperandRounding(const BackendCase& backend_case, DType dtype) {
  const bool rounds = (backend_case.backend == "cpu" && dtype != DType::kF32) ||
                      (backend_case.backend == "cuda" && backend_case.is_fast());
  return rounds ? kBf16Rounding : 0.0;
}

AttentionRow AttendExactly(const BackendCase& backend_case, const AttentionOptions& options,
                           const HeadShape& shape, const SequenceKv& kv, std::span<const float> q,
                           int head, int position) {
  const auto head_dim = static_cast<size_t>(shape.head_dim);
  const auto kv_head = static_cast<size_t>(head / (shape.num_heads / shape.num_kv_heads));
  const auto offset = [&](int key) {
    return (static_cast<size_t>(key) * static_cast<size_t>(shape.num_kv_heads) + kv_head) *
           head_dim;
  };
  const double operand_rounding = OperandRounding(backend_case, kv.dtype);
  // An int8 query is rounded here as the contract says, so that no bound has to cover it.
  const double query_rounding = kv.dtype == DType::kQ8_0 ? 0.0 : operand_rounding;
  std::vector<float> query(q.begin(), q.end());
  if (kv.dtype == DType::kQ8_0) RoundToInt8(query);
  AttentionRow row;
  const int first = options.window == 0 ? 0 : std::max(0, position - options.window + 1);
  double largest = -kInfinity;
  double score_error = 0;
  for (int key = 0; key <= position; ++key) {
    Bounded score{-kInfinity, 0};
    if (key >= first) {
      const auto k = std::span(kv.keys).subspan(offset(key), head_dim);
      score = WithBias(Score(query_rounding, options, query, k), options, head, key - position);
      largest = std::max(largest, score.value);
      score_error = std::max(score_error, score.error);
    }
    row.scores.push_back(score);
  }
  const bool has_sink = !options.sinks.empty();
  const double sink = has_sink ? double{options.sinks[static_cast<size_t>(head)]} : -kInfinity;
  if (has_sink) {
    largest = std::max(largest, sink);
    score_error = std::max(score_error, 8 * kF32Rounding * std::fabs(sink));
  }
  double sum = has_sink ? std::exp(sink - largest) : 0.0;
  for (const Bounded& score : row.scores) sum += std::exp(score.value - largest);
  row.log_sum_exp.value = largest + std::log(sum);
  // Every exponential is off by the error of its score and of the maximum and by a few roundings
  // for the function itself; sums run over segments of 256 keys.
  const double segments = std::ceil((position + 1) / 256.0);
  const double sum_error = (256 + segments + 16) * kF32Rounding;
  const double term_error =
      ExpError(score_error + 4 * kF32Rounding * std::fabs(largest)) + sum_error;
  row.log_sum_exp.error =
      term_error + operand_rounding + 8 * kF32Rounding * (std::fabs(row.log_sum_exp.value) + 1);
  std::vector<double> magnitudes(head_dim);
  row.output.resize(head_dim);
  for (int key = 0; key <= position; ++key) {
    const Bounded& score = row.scores[static_cast<size_t>(key)];
    const double weight = std::exp(score.value - row.log_sum_exp.value);
    // Subnormal terms may be flushed.
    row.weights.push_back(
        {weight, weight * ExpError(score.error + row.log_sum_exp.error) + 0x1p-120});
    for (size_t d = 0; d < head_dim; ++d) {
      const double value = kv.values[offset(key) + d];
      row.output[d].value += weight * value;
      magnitudes[d] += weight * std::fabs(value);
    }
  }
  // Numerator and denominator are sums of such terms, and the weights may be in bf16.
  const double output_error = 2 * term_error + 2 * operand_rounding;
  for (size_t d = 0; d < head_dim; ++d) {
    row.output[d].error = magnitudes[d] * output_error + 0x1p-100;
  }
  return row;
}

std::vector<float> StoredValues(DType dtype, std::vector<float> values) {
  if (dtype == DType::kF32) return values;
  for (float& value : values) value = FloatFromBf16(Bf16FromFloat(value));
  return values;
}

std::vector<float> StoredKeys(DType dtype, int head_dim, std::vector<float> keys) {
  if (dtype != DType::kQ8_0) return StoredValues(dtype, std::move(keys));
  constexpr size_t kGroup = 16;
  const auto columns = static_cast<size_t>(head_dim);
  for (size_t head = 0; head < keys.size(); head += columns) {
    for (size_t d = 0; d < columns; d += kGroup) {
      RoundToInt8(std::span(keys).subspan(head + d, std::min(kGroup, columns - d)));
    }
  }
  return keys;
}

}  // namespace vitrine::testing
