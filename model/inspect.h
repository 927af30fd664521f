// What a model file or folder holds, without loading its weights.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace vitrine {

// A report for people, one fact per line. What this version cannot serve is part of the report; a
// path that is missing or breaks a rule of its format is an error, as in ModelFiles.
absl::StatusOr<std::string> InspectModel(const std::string& path);

}  // namespace vitrine
