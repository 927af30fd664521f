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

std::optional<FieldViolation> ViolationOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kField);
  if (!payload.has_value()) return std::nullopt;
  const std::string field(*payload);
  const std::string message(status.message());
  return FieldViolation{.field = field, .rule = message.substr(field.size() + 2)};  // Behind ": ".
}

}  // namespace vitrine::server
