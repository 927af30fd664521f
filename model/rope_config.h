// How a config.json describes rotary embeddings, in the old spelling (rope_theta, rope_scaling) and
// the new one (rope_parameters).
#pragma once

#include "absl/status/status.h"
#include "model/config.h"
#include "model/json_config.h"

namespace vitrine {

// Fills rotary_dim, rope_frequencies and rope_attention_factor; head_dim and context_length are set
// already. UNIMPLEMENTED names a rule that is not supported.
absl::Status ReadRopeConfig(const JsonConfigReader& reader, ModelConfig& config);

}  // namespace vitrine
