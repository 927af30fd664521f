// How a Hugging Face folder says that its matrices are 8-bit floats.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "model/json_config.h"
#include "model/tensor_map.h"

namespace vitrine {

// What of a matrix shares a scale, by quantization_config; none where there is no such member.
// UNIMPLEMENTED names a way of quantising that is not known. Elsewhere the inputs of such matrices
// are rounded, too; here they stay what they are, as do matrices that a list leaves out: a tensor's
// own type tells.
absl::StatusOr<std::optional<Fp8Blocks>> ReadQuantization(JsonConfigReader& reader);

}  // namespace vitrine
