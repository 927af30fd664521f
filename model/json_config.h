// Hyper-parameters of a config.json, range-checked. A member that is null counts as absent.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/json.h"

namespace vitrine {

// Reads the members of one object and remembers which. All errors name the file and the member.
class JsonConfigReader {
 public:
  // `label` names the file, and for an object inside it the way there: "config.json: rope_scaling".
  JsonConfigReader(const JsonValue& object, std::string label)
      : object_(&object), label_(std::move(label)) {}

  // From now on `key` is read from the member `other` where there is no member `key`: many families
  // have their own names for what all of them have.
  void Alias(std::string_view key, std::string_view other) { aliases_.emplace_back(key, other); }

  bool IsNull(std::string_view key) const;  // The member is there, and it is null.
  bool Has(std::string_view key) const { return FindValue(key) != nullptr; }

  // The integer from `min` to `max`; INVALID_ARGUMENT where there is none, or `fallback`.
  absl::StatusOr<int> Int(std::string_view key, int min, int max) const;
  absl::StatusOr<int> Int(std::string_view key, int min, int max, int fallback) const;

  // A finite number above zero that is one in single precision, too. Integers are numbers.
  absl::StatusOr<double> PositiveFloat(std::string_view key) const;
  absl::StatusOr<double> PositiveFloat(std::string_view key, double fallback) const;
  // A number from `min` to `max`, which must be there.
  absl::StatusOr<double> Number(std::string_view key, double min, double max) const;
  absl::StatusOr<std::vector<double>> PositiveFloats(std::string_view key) const;

  absl::StatusOr<bool> Bool(std::string_view key, bool fallback) const;
  absl::StatusOr<std::string> String(std::string_view key) const;
  absl::StatusOr<std::string> String(std::string_view key, std::string fallback) const;

  // One integer or an array of them, each from 0 to `max`; empty where there is none.
  absl::StatusOr<std::vector<int>> Ids(std::string_view key, int max) const;
  absl::StatusOr<std::vector<std::string>> Strings(std::string_view key) const;

  // The object inside; none where there is none.
  absl::StatusOr<std::optional<JsonConfigReader>> Object(std::string_view key) const;

  // Marks a member that changes no result here, whatever it says.
  void Ignore(std::string_view key) { read_.emplace(key); }

  // UNIMPLEMENTED for a member that is not one of `keys`.
  absl::Status CheckKnown(std::span<const std::string_view> keys) const;
  // UNIMPLEMENTED for one of `keys` that nobody has read and that is not neutral (null, false, 0,
  // empty): it would silently change the results.
  absl::Status CheckRead(std::span<const std::string_view> keys) const;

  absl::Status Error(std::string_view key, std::string_view rule) const;
  absl::Status Unsupported(std::string_view key, std::string_view rule) const;

 private:
  // Under which name the object has the member.
  std::string_view Resolve(std::string_view key) const;
  const JsonValue* FindValue(std::string_view key) const;
  const JsonValue* Read(std::string_view key) const;
  absl::StatusOr<const JsonValue*> Require(std::string_view key) const;
  absl::Status WrongKind(std::string_view key, const JsonValue& value,
                         std::string_view expected) const;

  const JsonValue* object_;
  std::string label_;
  std::vector<std::pair<std::string_view, std::string_view>> aliases_;
  // A record of what happened, by which no answer changes.
  mutable std::set<std::string, std::less<>> read_;
};

}  // namespace vitrine
