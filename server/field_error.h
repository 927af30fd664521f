// Errors that name the request field which breaks a rule; they become google.rpc.BadRequest.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace vitrine::server {

// INVALID_ARGUMENT: "sampling.top_p: must be in (0, 1], is nan". Neither part holds prompt text.
absl::Status FieldError(std::string_view field, std::string_view rule);

struct FieldViolation {
  std::string field;
  std::string rule;
};

// Of the error, if FieldError made it.
std::optional<FieldViolation> ViolationOf(const absl::Status& status);

}  // namespace vitrine::server
