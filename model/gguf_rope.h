// How a GGUF file describes rotary embeddings.
#pragma once

#include "absl/status/status.h"
#include "model/config.h"
#include "model/gguf_config.h"

namespace vitrine {

// Fills rotary_dim, the frequencies and rope_attention_factor; head_dim and context_length are set
// already. UNIMPLEMENTED names a rule that is not supported.
absl::Status ReadGgufRope(GgufConfigReader& reader, RopePairing pairing, ModelConfig& config);

}  // namespace vitrine
