// llama, and what shares its form: mistral without a window, smollm, tinyllama, vicuna.
#pragma once

#include "absl/status/statusor.h"
#include "model/config.h"
#include "model/gguf_config.h"

namespace vitrine {

// Everything but the names of the architecture and the model.
absl::StatusOr<ModelConfig> ReadLlamaConfig(GgufConfigReader& reader);

}  // namespace vitrine
