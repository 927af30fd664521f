// What the lab starts from, and how its numbers are written on a command line.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/attention_lab.h"

namespace vitrine::server {

enum class LabScale { kSqrtD, kOff, kNumber };

// Everything that can be edited. The scale follows d until it is set to a number.
struct LabSetup {
  std::string name;
  std::string summary;  // One sentence.
  std::vector<std::string> tokens;
  LabMatrix q;
  LabMatrix k;
  LabMatrix v;
  bool causal = false;
  LabScale scale = LabScale::kSqrtD;
  float scale_number = 1.0f;               // With kNumber.
  std::optional<int> query = {};           // The row of interest; none: all.
  std::vector<std::string> features = {};  // What the columns stand for; may be empty.

  LabInput Input() const;
  // "1/sqrt(4) = 0.5", "1 (off)", "0.25".
  std::string ScaleText() const;
};

// "toy", "animal", "street", "journey".
const std::vector<LabSetup>& LabExamples();

// INVALID_ARGUMENT lists the names.
absl::StatusOr<LabSetup> FindLabExample(std::string_view name);

// "1,0,1;0,2,0": rows with semicolons or line ends between, numbers with commas or spaces.
// INVALID_ARGUMENT names the row.
absl::StatusOr<LabMatrix> ParseLabMatrix(std::string_view text);

// "sqrt_d", "off" or a positive number.
absl::Status ParseLabScale(std::string_view text, LabSetup& setup);

// A token by its text, or its index from 0; where a text stands twice, only the index names it.
absl::StatusOr<int> FindLabToken(const LabSetup& setup, std::string_view name);

}  // namespace vitrine::server
