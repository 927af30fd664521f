// Hyper-parameters of a config.json, range-checked. A member that is null counts as absent.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/json.h"

namespace vitrine {

// Reads the members of one object. All errors name the file and the member.
class JsonConfigReader {
 public:
  // `label` names the file, and for an object inside it the way there: "config.json: rope_scaling".
  JsonConfigReader(const JsonValue& object, std::string label)
      : object_(&object), label_(std::move(label)) {}

  bool Has(std::string_view key) const { return FindValue(key) != nullptr; }

  // The integer from `min` to `max`; INVALID_ARGUMENT where there is none, or `fallback`.
  absl::StatusOr<int> Int(std::string_view key, int min, int max) const;
  absl::StatusOr<int> Int(std::string_view key, int min, int max, int fallback) const;

  // A finite number above zero that is one in single precision, too. Integers are numbers.
  absl::StatusOr<double> PositiveFloat(std::string_view key) const;
  absl::StatusOr<double> PositiveFloat(std::string_view key, double fallback) const;

  absl::StatusOr<bool> Bool(std::string_view key, bool fallback) const;
  absl::StatusOr<std::string> String(std::string_view key) const;
  absl::StatusOr<std::string> String(std::string_view key, std::string fallback) const;

  // One integer or an array of them, each from 0 to `max`; empty where there is none.
  absl::StatusOr<std::vector<int>> Ids(std::string_view key, int max) const;
  absl::StatusOr<std::vector<std::string>> Strings(std::string_view key) const;

  // The object inside; none where there is none.
  absl::StatusOr<std::optional<JsonConfigReader>> Object(std::string_view key) const;

  // UNIMPLEMENTED for a member that is not one of `keys`.
  absl::Status CheckKnown(std::span<const std::string_view> keys) const;

  absl::Status Error(std::string_view key, std::string_view rule) const;
  absl::Status Unsupported(std::string_view key, std::string_view rule) const;

 private:
  const JsonValue* FindValue(std::string_view key) const;
  absl::StatusOr<const JsonValue*> Require(std::string_view key) const;
  absl::Status WrongKind(std::string_view key, const JsonValue& value,
                         std::string_view expected) const;

  const JsonValue* object_;
  std::string label_;
};

}  // namespace vitrine
