// JSON of model files as a tree. Stricter than the standard where files lie: duplicate keys,
// nesting beyond 64 and a byte order mark are refused. Memory is bounded by the number of values,
// which the caller limits. Immutable, so thread-safe, once parsed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace vitrine {

class JsonValue {
 public:
  using Array = std::vector<JsonValue>;
  using Object = std::vector<std::pair<std::string, JsonValue>>;  // In the order of the file.

  JsonValue() = default;
  template <class T>
  explicit JsonValue(T value) : value_(std::move(value)) {}

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }

  // Null when the value is of another kind. Integers are never floats: 1.0 and 1e0 are floats.
  const bool* AsBool() const { return std::get_if<bool>(&value_); }
  const std::string* AsString() const { return std::get_if<std::string>(&value_); }
  const Array* AsArray() const { return std::get_if<Array>(&value_); }
  const Object* AsObject() const { return std::get_if<Object>(&value_); }
  const int64_t* AsInt() const { return std::get_if<int64_t>(&value_); }  // From -2^63 to 2^63 - 1.
  const double* AsFloat() const { return std::get_if<double>(&value_); }

  // The member of an object, by linear search; null when there is none, or this is no object.
  const JsonValue* Find(std::string_view key) const;

  // How many values there are, this one included.
  size_t CountValues() const;

  // "a string", "an object": for error messages.
  std::string_view kind() const;

 private:
  friend class JsonBuilder;

  std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, Object> value_ = nullptr;
};

// INVALID_ARGUMENT with the rule and the byte offset; `label` names the text. An integer beyond 64
// bits is the float that is near it.
absl::StatusOr<JsonValue> ParseJson(std::string_view text, std::string_view label,
                                    size_t max_values);

// The same for what is passed on as it is: OUT_OF_RANGE where an integer has more than 64 bits, and
// RESOURCE_EXHAUSTED where there are more than `max_values`.
absl::StatusOr<JsonValue> ParseExactJson(std::string_view text, std::string_view label,
                                         size_t max_values);

}  // namespace vitrine
