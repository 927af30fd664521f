// Reads what a GGUF file says about the model into a ModelConfig and the names of its tensors. A
// family is a row of a table; what it does not know, it refuses by name.
#pragma once

#include "absl/status/statusor.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/tensor_map.h"

namespace vitrine {

struct GgufDescription {
  ModelConfig config;
  TensorNames names;
};

// `tensors` are those of `file`, or of all parts of which it is the first. UNIMPLEMENTED names an
// architecture or a feature that is not supported; INVALID_ARGUMENT a key that is missing or breaks
// a rule. Both name the file.
absl::StatusOr<GgufDescription> DescribeGguf(const GgufFile& file, const Checkpoint& tensors);

}  // namespace vitrine
