// Angles per position of rotary embeddings: what the base and the scaling rules come to. The rules
// are those of transformers (modeling_rope_utils.py), in double.
#pragma once

#include <vector>

namespace vitrine {

// base^(-2i / rotary_dim) for each pair i (Su et al., 2021): [rotary_dim / 2].
std::vector<double> RopeFrequencies(int rotary_dim, double base);

// Position interpolation (Chen et al., 2023).
std::vector<double> LinearRopeFrequencies(int rotary_dim, double base, double factor);

// "Dynamic NTK": the base grows so that `length` positions fit where `original_length` did.
std::vector<double> DynamicRopeFrequencies(int rotary_dim, double base, double factor,
                                           int original_length, int length);

// Llama 3.1: long waves are stretched by `factor`, short ones are not, those between are blended.
struct Llama3Scaling {
  double factor = 1.0;
  double low_frequency_factor = 1.0;   // Waves longer than original_length / this are long.
  double high_frequency_factor = 4.0;  // Waves shorter than original_length / this are short.
  int original_length = 0;
};
std::vector<double> Llama3RopeFrequencies(int rotary_dim, double base,
                                          const Llama3Scaling& scaling);

// YaRN (Peng et al., 2023), by parts: between the dimensions that turn `fast_turns` and
// `slow_turns` times over the original length, from unscaled to stretched by `factor`.
struct YarnScaling {
  double factor = 1.0;
  double fast_turns = 32.0;
  double slow_turns = 1.0;
  int original_length = 0;
  bool is_truncated = true;  // The blend begins and ends at whole dimensions.
};
std::vector<double> YarnRopeFrequencies(int rotary_dim, double base, const YarnScaling& scaling);

// What YaRN multiplies cosines and sines by: 0.1 `scale` ln(factor) + 1, and 1 up to factor 1.
double YarnAttentionFactor(double factor, double scale = 1.0);

// What LongRoPE multiplies them by: sqrt(1 + ln(factor) / ln(original_length)), 1 up to factor 1.
double LongRopeAttentionFactor(double factor, int original_length);

}  // namespace vitrine
