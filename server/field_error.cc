#include "server/field_error.h"

#include "absl/strings/cord.h"

namespace vitrine::server {
namespace {

constexpr char kField[] = "vitrine/field";

}  // namespace

absl::Status FieldError(std::string_view field, std::string_view rule) {
  const std::string name(field);
  absl::Status status = absl::InvalidArgumentError(name + ": " + std::string(rule));
  status.SetPayload(kField, absl::Cord(name));
  return status;
}

std::optional<std::string> FieldOf(const absl::Status& status) {
  const absl::optional<absl::Cord> field = status.GetPayload(kField);
  if (!field.has_value()) return std::nullopt;
  return std::string(*field);
}

}  // namespace vitrine::server
