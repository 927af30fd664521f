// Reads what a Hugging Face folder says about its model: a family is a function from config.json to
// a ModelConfig and the names of its tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/config.h"
#include "model/sampling_defaults.h"
#include "model/tensor_map.h"

namespace vitrine {

struct FolderDescription {
  ModelConfig config;
  TensorNames names;
  int32_t bos_id = -1;           // -1: none.
  std::vector<int32_t> eos_ids;  // Of generation_config.json where it names any, else config.json.
  SamplingDefaults sampling;     // Of generation_config.json.
};

// UNIMPLEMENTED names a model_type or a feature that is not supported; INVALID_ARGUMENT a member
// that is missing or breaks a rule; both name the file. Members that nothing here knows are
// ignored, for config.json is full of what concerns training and other programs; but not those by
// which some family is known to compute something else.
absl::StatusOr<FolderDescription> DescribeFolder(const std::string& folder);

}  // namespace vitrine
