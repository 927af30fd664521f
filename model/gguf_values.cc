// Typed look-ups of GGUF metadata.
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/gguf.h"
#include "model/quote.h"
#include "model/status.h"

namespace vitrine {
namespace {

std::string_view KindOf(const GgufValue& value) {
  constexpr std::string_view kKinds[] = {
      "an unsigned integer", "an integer", "a float", "a bool", "a string", "an array"};
  static_assert(std::size(kKinds) == std::variant_size_v<GgufValue>);
  return kKinds[value.index()];
}

std::string_view NameOf(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
      return "uint8";
    case GgufType::kInt8:
      return "int8";
    case GgufType::kUint16:
      return "uint16";
    case GgufType::kInt16:
      return "int16";
    case GgufType::kUint32:
      return "uint32";
    case GgufType::kInt32:
      return "int32";
    case GgufType::kFloat32:
      return "float32";
    case GgufType::kBool:
      return "bool";
    case GgufType::kString:
      return "string";
    case GgufType::kArray:
      return "array";
    case GgufType::kUint64:
      return "uint64";
    case GgufType::kInt64:
      return "int64";
    case GgufType::kFloat64:
      return "float64";
  }
  return "unknown";
}

absl::Status KeyError(const GgufFile& file, std::string_view key, std::string_view rule) {
  return absl::InvalidArgumentError(
      absl::StrCat(file.label(), ": key ", Quote(key), " ", std::string(rule)));
}

absl::StatusOr<GgufValue> FindValue(const GgufFile& file, std::string_view key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) {
    return absl::NotFoundError(absl::StrCat(file.label(), ": key ", Quote(key), " is missing"));
  }
  return found->second;
}

absl::Status WrongKind(const GgufFile& file, std::string_view key, const GgufValue& value,
                       std::string_view expected) {
  return KeyError(
      file, key,
      absl::StrCat("is ", std::string(KindOf(value)), ", expected ", std::string(expected)));
}

template <class T>
absl::StatusOr<T> Typed(const GgufFile& file, std::string_view key, std::string_view expected) {
  VITRINE_ASSIGN_OR_RETURN(const GgufValue value, FindValue(file, key));
  const T* typed = std::get_if<T>(&value);
  if (typed == nullptr) return WrongKind(file, key, value, expected);
  return *typed;
}

absl::Status WrongElements(const GgufFile& file, std::string_view key, const GgufArray& array,
                           std::string_view expected) {
  return KeyError(file, key,
                  absl::StrCat("is an array of ", std::string(NameOf(array.element_type)),
                               ", expected ", std::string(expected)));
}

// Decodes the elements of an array, stored as Stored.
template <class Stored, class Value>
std::vector<Value> Decode(const GgufArray& array) {
  std::vector<Value> values;
  values.reserve(array.size);
  for (size_t i = 0; i < array.size; ++i) {
    Stored stored{};
    std::memcpy(&stored, array.bytes.data() + i * sizeof(Stored), sizeof(Stored));
    values.push_back(static_cast<Value>(stored));
  }
  return values;
}

}  // namespace

absl::StatusOr<uint64_t> GgufFile::Uint(std::string_view key) const {
  VITRINE_ASSIGN_OR_RETURN(const GgufValue value, FindValue(*this, key));
  if (const auto* unsigned_value = std::get_if<uint64_t>(&value)) return *unsigned_value;
  if (const auto* signed_value = std::get_if<int64_t>(&value)) {
    if (*signed_value >= 0) return static_cast<uint64_t>(*signed_value);
    return KeyError(*this, key, absl::StrCat("is ", *signed_value, ", expected at least 0"));
  }
  return WrongKind(*this, key, value, "an integer");
}

absl::StatusOr<double> GgufFile::Float(std::string_view key) const {
  return Typed<double>(*this, key, "a float");
}

absl::StatusOr<bool> GgufFile::Bool(std::string_view key) const {
  return Typed<bool>(*this, key, "a bool");
}

absl::StatusOr<std::string_view> GgufFile::String(std::string_view key) const {
  return Typed<std::string_view>(*this, key, "a string");
}

absl::StatusOr<GgufArray> GgufFile::Array(std::string_view key) const {
  return Typed<GgufArray>(*this, key, "an array");
}

absl::StatusOr<std::vector<std::string_view>> GgufFile::StringArray(std::string_view key) const {
  VITRINE_ASSIGN_OR_RETURN(const GgufArray array, Array(key));
  if (array.element_type != GgufType::kString) return WrongElements(*this, key, array, "strings");
  std::vector<std::string_view> values;
  values.reserve(array.size);
  std::string_view left = array.bytes;
  for (uint64_t i = 0; i < array.size; ++i) {
    uint64_t length = 0;
    std::memcpy(&length, left.data(), sizeof(length));
    values.push_back(left.substr(sizeof(length), length));
    left.remove_prefix(sizeof(length) + length);
  }
  return values;
}

absl::StatusOr<std::vector<int64_t>> GgufFile::IntArray(std::string_view key) const {
  VITRINE_ASSIGN_OR_RETURN(const GgufArray array, Array(key));
  switch (array.element_type) {
    case GgufType::kUint32:
      return Decode<uint32_t, int64_t>(array);
    case GgufType::kInt32:
      return Decode<int32_t, int64_t>(array);
    case GgufType::kInt64:
      return Decode<int64_t, int64_t>(array);
    case GgufType::kUint64: {
      std::vector<int64_t> values = Decode<uint64_t, int64_t>(array);
      for (const int64_t value : values) {
        if (value < 0) {
          return KeyError(
              *this, key,
              absl::StrCat("holds ", static_cast<uint64_t>(value), ", which is too large"));
        }
      }
      return values;
    }
    default:
      return WrongElements(*this, key, array, "integers of 32 or 64 bits");
  }
}

absl::StatusOr<std::vector<float>> GgufFile::FloatArray(std::string_view key) const {
  VITRINE_ASSIGN_OR_RETURN(const GgufArray array, Array(key));
  if (array.element_type == GgufType::kFloat32) return Decode<float, float>(array);
  return WrongElements(*this, key, array, "float32");
}

}  // namespace vitrine
