// What a model file holds, without loading its weights.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace vitrine {

// A report for people, one fact per line. What this version cannot serve is part of the report; a
// file that is missing or breaks a rule of its format is an error, as in GgufFile::Open and
// ReadConfig.
absl::StatusOr<std::string> InspectModel(const std::string& path);

}  // namespace vitrine
