// Reads what a model file says about the model into a ModelConfig. A family is a function from the
// metadata to the config; what it does not know, it refuses by name.
#pragma once

#include "absl/status/statusor.h"
#include "model/config.h"
#include "model/gguf.h"

namespace vitrine {

// UNIMPLEMENTED names an architecture or a feature that is not supported; INVALID_ARGUMENT a key
// that is missing or breaks a rule. Both name the file.
absl::StatusOr<ModelConfig> ReadConfig(const GgufFile& file);

}  // namespace vitrine
