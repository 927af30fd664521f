#include "model/json_config.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/quote.h"
#include "model/status.h"

namespace vitrine {

namespace {

bool IsNeutral(const JsonValue& value) {
  if (value.is_null()) return true;
  if (const bool* flag = value.AsBool()) return !*flag;
  if (const int64_t* number = value.AsInt()) return *number == 0;
  if (const double* number = value.AsFloat()) return *number == 0.0;
  if (const std::string* text = value.AsString()) return text->empty();
  if (const JsonValue::Object* members = value.AsObject()) return members->empty();
  return value.AsArray()->empty();
}

// A finite number above zero, in single precision, too.
std::optional<double> AsPositiveFloat(const JsonValue& value) {
  double number = 0.0;
  if (const int64_t* integer = value.AsInt()) number = static_cast<double>(*integer);
  if (const double* real = value.AsFloat()) number = *real;
  const auto single = static_cast<float>(number);
  if (!std::isfinite(single) || single <= 0.0f) return std::nullopt;
  return number;
}

}  // namespace

std::string_view JsonConfigReader::Resolve(std::string_view key) const {
  const auto is_there = [&](std::string_view name) {
    const JsonValue* value = object_->Find(name);
    return value != nullptr && !value->is_null();
  };
  if (is_there(key)) return key;
  for (const auto& [name, other] : aliases_) {
    if (name == key && is_there(other)) return other;
  }
  return key;
}

const JsonValue* JsonConfigReader::FindValue(std::string_view key) const {
  const JsonValue* value = object_->Find(Resolve(key));
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool JsonConfigReader::IsNull(std::string_view key) const {
  const JsonValue* value = object_->Find(key);
  return value != nullptr && value->is_null();
}

const JsonValue* JsonConfigReader::Read(std::string_view key) const {
  read_.emplace(Resolve(key));
  return FindValue(key);
}

absl::StatusOr<const JsonValue*> JsonConfigReader::Require(std::string_view key) const {
  const JsonValue* value = Read(key);
  if (value == nullptr) return Error(key, "is missing");
  return value;
}

absl::Status JsonConfigReader::Error(std::string_view key, std::string_view rule) const {
  return absl::InvalidArgumentError(
      absl::StrCat(label_, ": ", std::string(Resolve(key)), " ", std::string(rule)));
}

absl::Status JsonConfigReader::Unsupported(std::string_view key, std::string_view rule) const {
  return absl::UnimplementedError(
      absl::StrCat(label_, ": ", std::string(Resolve(key)), " ", std::string(rule)));
}

absl::Status JsonConfigReader::WrongKind(std::string_view key, const JsonValue& value,
                                         std::string_view expected) const {
  return Error(
      key, absl::StrCat("is ", std::string(value.kind()), ", expected ", std::string(expected)));
}

absl::StatusOr<int> JsonConfigReader::Int(std::string_view key, int min, int max) const {
  VITRINE_ASSIGN_OR_RETURN(const JsonValue* value, Require(key));
  const int64_t* integer = value->AsInt();
  if (integer == nullptr) return WrongKind(key, *value, "an integer");
  if (*integer < min || *integer > max) {
    return Error(key, absl::StrCat("is ", *integer, ", expected ", min, " to ", max));
  }
  return static_cast<int>(*integer);
}

absl::StatusOr<int> JsonConfigReader::Int(std::string_view key, int min, int max,
                                          int fallback) const {
  if (Read(key) == nullptr) return fallback;
  return Int(key, min, max);
}

absl::StatusOr<double> JsonConfigReader::PositiveFloat(std::string_view key) const {
  VITRINE_ASSIGN_OR_RETURN(const JsonValue* value, Require(key));
  if (value->AsInt() == nullptr && value->AsFloat() == nullptr) {
    return WrongKind(key, *value, "a number");
  }
  if (const std::optional<double> number = AsPositiveFloat(*value)) return *number;
  const double number =
      value->AsInt() != nullptr ? static_cast<double>(*value->AsInt()) : *value->AsFloat();
  return Error(key, absl::StrCat("is ", number, ", expected a finite number above 0"));
}

absl::StatusOr<double> JsonConfigReader::PositiveFloat(std::string_view key,
                                                       double fallback) const {
  if (Read(key) == nullptr) return fallback;
  return PositiveFloat(key);
}

absl::StatusOr<double> JsonConfigReader::Number(std::string_view key, double min,
                                                double max) const {
  VITRINE_ASSIGN_OR_RETURN(const JsonValue* value, Require(key));
  if (value->AsInt() == nullptr && value->AsFloat() == nullptr) {
    return WrongKind(key, *value, "a number");
  }
  const double number =
      value->AsInt() != nullptr ? static_cast<double>(*value->AsInt()) : *value->AsFloat();
  if (!(number >= min && number <= max)) {
    return Error(key, absl::StrCat("is ", number, ", expected ", min, " to ", max));
  }
  return number;
}

absl::StatusOr<std::vector<double>> JsonConfigReader::PositiveFloats(std::string_view key) const {
  VITRINE_ASSIGN_OR_RETURN(const JsonValue* value, Require(key));
  if (value->AsArray() == nullptr) return WrongKind(key, *value, "an array of numbers");
  std::vector<double> numbers;
  for (const JsonValue& element : *value->AsArray()) {
    const std::optional<double> number = AsPositiveFloat(element);
    if (!number) return Error(key, "holds what is not a finite number above 0");
    numbers.push_back(*number);
  }
  return numbers;
}

absl::StatusOr<bool> JsonConfigReader::Bool(std::string_view key, bool fallback) const {
  const JsonValue* value = Read(key);
  if (value == nullptr) return fallback;
  if (value->AsBool() == nullptr) return WrongKind(key, *value, "a bool");
  return *value->AsBool();
}

absl::StatusOr<std::string> JsonConfigReader::String(std::string_view key) const {
  VITRINE_ASSIGN_OR_RETURN(const JsonValue* value, Require(key));
  if (value->AsString() == nullptr) return WrongKind(key, *value, "a string");
  return *value->AsString();
}

absl::StatusOr<std::string> JsonConfigReader::String(std::string_view key,
                                                     std::string fallback) const {
  if (Read(key) == nullptr) return fallback;
  return String(key);
}

absl::StatusOr<std::vector<int>> JsonConfigReader::Ids(std::string_view key, int max) const {
  const JsonValue* value = Read(key);
  std::vector<int> ids;
  if (value == nullptr) return ids;
  const JsonValue* begin = value;
  size_t count = 1;
  if (const JsonValue::Array* array = value->AsArray()) {
    begin = array->data();
    count = array->size();
  }
  for (size_t i = 0; i < count; ++i) {
    const int64_t* id = begin[i].AsInt();
    if (id == nullptr) return WrongKind(key, begin[i], "a token id or an array of them");
    if (*id < 0 || *id > max) {
      return Error(key, absl::StrCat("is ", *id, ", expected a token id from 0 to ", max));
    }
    ids.push_back(static_cast<int>(*id));
  }
  return ids;
}

absl::StatusOr<std::vector<std::string>> JsonConfigReader::Strings(std::string_view key) const {
  const JsonValue* value = Read(key);
  std::vector<std::string> strings;
  if (value == nullptr) return strings;
  if (value->AsArray() == nullptr) return WrongKind(key, *value, "an array of strings");
  for (const JsonValue& element : *value->AsArray()) {
    if (element.AsString() == nullptr) return WrongKind(key, element, "an array of strings");
    strings.push_back(*element.AsString());
  }
  return strings;
}

absl::StatusOr<std::optional<JsonConfigReader>> JsonConfigReader::Object(
    std::string_view key) const {
  const JsonValue* value = Read(key);
  if (value == nullptr) return std::optional<JsonConfigReader>();
  if (value->AsObject() == nullptr) return WrongKind(key, *value, "an object");
  return std::optional<JsonConfigReader>(
      JsonConfigReader(*value, absl::StrCat(label_, ": ", std::string(key))));
}

absl::Status JsonConfigReader::CheckKnown(std::span<const std::string_view> keys) const {
  const JsonValue::Object* members = object_->AsObject();
  if (members == nullptr) return absl::OkStatus();
  for (const auto& [name, value] : *members) {
    if (!value.is_null() && std::ranges::find(keys, name) == keys.end()) {
      return absl::UnimplementedError(absl::StrCat(label_, ": ", Quote(name), " is not supported"));
    }
  }
  return absl::OkStatus();
}

absl::Status JsonConfigReader::CheckRead(std::span<const std::string_view> keys) const {
  for (const std::string_view key : keys) {
    const JsonValue* value = object_->Find(key);
    if (value == nullptr || IsNeutral(*value) || read_.contains(key)) continue;
    return Unsupported(key, "asks for what is not supported in this family");
  }
  return absl::OkStatus();
}

}  // namespace vitrine
