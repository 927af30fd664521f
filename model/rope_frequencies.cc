#include "model/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>

namespace vitrine {
namespace {

constexpr double kTwoPi = 2.0 * std::numbers::pi;

// The dimension, as a real number, that turns `turns` times over `length` positions.
double DimensionOfTurns(int rotary_dim, double base, double turns, int length) {
  return rotary_dim * std::log(length / (turns * kTwoPi)) / (2.0 * std::log(base));
}

}  // namespace

std::vector<double> RopeFrequencies(int rotary_dim, double base) {
  std::vector<double> frequencies(static_cast<size_t>(rotary_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(base, -2.0 * static_cast<double>(i) / rotary_dim);
  }
  return frequencies;
}

std::vector<double> LinearRopeFrequencies(int rotary_dim, double base, double factor) {
  std::vector<double> frequencies = RopeFrequencies(rotary_dim, base);
  for (double& frequency : frequencies) frequency /= factor;
  return frequencies;
}

std::vector<double> DynamicRopeFrequencies(int rotary_dim, double base, double factor,
                                           int original_length, int length) {
  if (rotary_dim <= 2) return RopeFrequencies(rotary_dim, base);  // One pair: frequency 1 always.
  const double stretch =
      factor * std::max(length, original_length) / original_length - (factor - 1.0);
  const double exponent = rotary_dim / (rotary_dim - 2.0);
  return RopeFrequencies(rotary_dim, base * std::pow(stretch, exponent));
}

std::vector<double> Llama3RopeFrequencies(int rotary_dim, double base,
                                          const Llama3Scaling& scaling) {
  std::vector<double> frequencies = RopeFrequencies(rotary_dim, base);
  for (double& frequency : frequencies) {
    const double wavelength = kTwoPi / frequency;
    const double turns = scaling.original_length / wavelength;
    // The share of the unscaled frequency: 0 for long waves, 1 for short ones.
    const double share =
        std::clamp((turns - scaling.low_frequency_factor) /
                       (scaling.high_frequency_factor - scaling.low_frequency_factor),
                   0.0, 1.0);
    frequency = (1.0 - share) * frequency / scaling.factor + share * frequency;
  }
  return frequencies;
}

std::vector<double> YarnRopeFrequencies(int rotary_dim, double base, const YarnScaling& scaling) {
  double low = DimensionOfTurns(rotary_dim, base, scaling.fast_turns, scaling.original_length);
  double high = DimensionOfTurns(rotary_dim, base, scaling.slow_turns, scaling.original_length);
  if (scaling.is_truncated) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rotary_dim - 1.0);
  if (low == high) high += 0.001;  // As transformers does, to avoid a division by zero.
  std::vector<double> frequencies = RopeFrequencies(rotary_dim, base);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] =
        stretched * frequencies[i] / scaling.factor + (1.0 - stretched) * frequencies[i];
  }
  return frequencies;
}

double YarnAttentionFactor(double factor, double scale) {
  return factor <= 1.0 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

double LongRopeAttentionFactor(double factor, int original_length) {
  if (factor <= 1.0 || original_length <= 1) return 1.0;
  return std::sqrt(1.0 + std::log(factor) / std::log(original_length));
}

}  // namespace vitrine
