// How a config.json describes rotary embeddings, in the old spelling (rope_theta, rope_scaling) and
// the new one (rope_parameters).
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "model/config.h"
#include "model/json_config.h"

namespace vitrine {

// What a family takes where config.json is silent.
struct RopeDefaults {
  double base = 10000.0;
  // The share of a head that is rotated; none: the family rotates whole heads.
  std::optional<double> partial_rotary_factor = {};
};

// Fills rotary_dim, the frequencies and rope_attention_factor; head_dim and context_length are set
// already. Pairs are half-split. UNIMPLEMENTED names a rule that is not supported.
absl::Status ReadRopeConfig(JsonConfigReader& reader, const RopeDefaults& defaults,
                            ModelConfig& config);

// The same for Gemma 3, whose windowed layers (config.layers has a window) have frequencies of
// their own.
absl::Status ReadLayeredRopeConfig(JsonConfigReader& reader, ModelConfig& config);

}  // namespace vitrine
