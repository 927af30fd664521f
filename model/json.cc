// The only user of nlohmann-json in the libraries: it costs seconds per translation unit.
#include "model/json.h"

#include <algorithm>
#include <limits>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/quote.h"
#include "nlohmann/json.hpp"

namespace vitrine {
namespace {

constexpr size_t kMaxDepth = 64;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

}  // namespace

// Receives the parser's events (its SAX interface, which throws nothing) and builds the tree.
class JsonBuilder {
 public:
  JsonBuilder(size_t max_values, bool is_exact) : max_values_(max_values), is_exact_(is_exact) {}

  JsonValue Take() { return std::move(root_); }
  // Why the parse ended; the message has no label yet.
  const absl::Status& status() const { return status_; }

  // The interface that nlohmann::json::sax_parse asks for; false ends the parse.
  using Json = nlohmann::json;

  bool null() { return Add(JsonValue()); }
  bool boolean(bool value) { return Add(JsonValue(value)); }
  bool number_integer(Json::number_integer_t value) { return Add(JsonValue(int64_t{value})); }
  bool number_unsigned(Json::number_unsigned_t value) {
    // What does not fit is a float, as the parser itself treats what does not fit 64 bits.
    if (value > uint64_t{std::numeric_limits<int64_t>::max()}) {
      return AddBigInteger(static_cast<double>(value));
    }
    return Add(JsonValue(static_cast<int64_t>(value)));
  }
  bool number_float(Json::number_float_t value, const Json::string_t& text) {
    const bool is_integer = text.find_first_of(".eE") == std::string::npos;
    return is_integer ? AddBigInteger(value) : Add(JsonValue(value));
  }
  bool string(Json::string_t& value) { return Add(JsonValue(std::move(value))); }
  bool binary(Json::binary_t& /*value*/) { return false; }
  bool start_object(size_t /*size*/) { return Open(JsonValue(JsonValue::Object())); }
  bool start_array(size_t /*size*/) { return Open(JsonValue(JsonValue::Array())); }
  bool end_object() { return CheckKeys(*open_.back()->AsObject()) && Close(); }
  bool end_array() { return Close(); }
  bool key(Json::string_t& name) {
    key_ = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::json::exception& /*error*/) {
    return Fail(absl::StrCat("not JSON at byte ", position, ", near ", Quote(token)));
  }

 private:
  bool Fail(const std::string& error) { return Fail(absl::InvalidArgumentError(error)); }
  bool Fail(absl::Status status) {
    status_ = std::move(status);
    return false;
  }

  bool AddBigInteger(double value) {
    if (!is_exact_) return Add(JsonValue(value));
    return Fail(absl::OutOfRangeError("an integer below -2^63 or above 2^63 - 1"));
  }

  // Puts the value into the container that is open, and says where it is now.
  JsonValue* Place(JsonValue value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    auto& container = open_.back()->value_;
    if (auto* array = std::get_if<JsonValue::Array>(&container)) {
      return &array->emplace_back(std::move(value));
    }
    auto& object = std::get<JsonValue::Object>(container);
    return &object.emplace_back(std::move(key_), std::move(value)).second;
  }

  bool CountValue() {
    if (++num_values_ <= max_values_) return true;
    return Fail(absl::ResourceExhaustedError(absl::StrCat("more than ", max_values_, " values")));
  }

  bool Add(JsonValue value) {
    if (!CountValue()) return false;
    Place(std::move(value));
    return true;
  }

  // A container stays where it is until it is closed: only the innermost one grows.
  bool Open(JsonValue value) {
    if (!CountValue()) return false;
    if (open_.size() == kMaxDepth) return Fail(absl::StrCat("nested deeper than ", kMaxDepth));
    open_.push_back(Place(std::move(value)));
    return true;
  }

  // No two members of an object have one name. Few are compared, many are hashed.
  bool CheckKeys(const JsonValue::Object& object) {
    constexpr size_t kFew = 8;
    absl::flat_hash_set<std::string_view> seen;
    if (object.size() > kFew) seen.reserve(object.size());
    for (size_t i = 0; i < object.size(); ++i) {
      const std::string_view name = object[i].first;
      const auto is_name = [&](const auto& member) { return member.first == name; };
      const bool is_new = object.size() > kFew
                              ? seen.insert(name).second
                              : std::none_of(object.begin(), object.begin() + i, is_name);
      if (!is_new) return Fail(absl::StrCat("duplicate key ", Quote(name)));
    }
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  size_t max_values_;
  bool is_exact_;  // Integers are, or the text is refused.
  size_t num_values_ = 0;
  JsonValue root_;
  std::vector<JsonValue*> open_;
  std::string key_;
  absl::Status status_;
};

const JsonValue* JsonValue::Find(std::string_view key) const {
  const Object* object = AsObject();
  if (object == nullptr) return nullptr;
  for (const auto& [name, value] : *object) {
    if (name == key) return &value;
  }
  return nullptr;
}

size_t JsonValue::CountValues() const {
  size_t count = 1;
  if (const Array* array = AsArray()) {
    for (const JsonValue& value : *array) count += value.CountValues();
  }
  if (const Object* object = AsObject()) {
    for (const auto& [name, value] : *object) count += value.CountValues();
  }
  return count;
}

std::string_view JsonValue::kind() const {
  constexpr std::string_view kKinds[] = {"null",     "a bool",   "an integer", "a float",
                                         "a string", "an array", "an object"};
  return kKinds[value_.index()];
}

namespace {

absl::StatusOr<JsonValue> Parse(std::string_view text, std::string_view label,
                                JsonBuilder&& builder) {
  const auto error = [&](const absl::Status& status) {
    return absl::Status(status.code(),
                        absl::StrCat(std::string(label), ": ", std::string(status.message())));
  };
  const auto invalid = [&](const char* rule) { return error(absl::InvalidArgumentError(rule)); };
  if (text.empty()) return invalid("empty, expected JSON");
  if (text.starts_with(kByteOrderMark)) return invalid("begins with a byte order mark");
  // No JSON holds one, and the parser would take it for the end of the text.
  if (text.find('\0') != std::string_view::npos) return invalid("holds a NUL byte");
  if (nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) return builder.Take();
  return error(builder.status());
}

}  // namespace

absl::StatusOr<JsonValue> ParseJson(std::string_view text, std::string_view label,
                                    size_t max_values) {
  absl::StatusOr<JsonValue> value = Parse(text, label, JsonBuilder(max_values, false));
  if (value.ok()) return value;
  return absl::InvalidArgumentError(value.status().message());
}

absl::StatusOr<JsonValue> ParseExactJson(std::string_view text, std::string_view label,
                                         size_t max_values) {
  return Parse(text, label, JsonBuilder(max_values, true));
}

}  // namespace vitrine
