#include "model/gguf_config.h"

#include <cmath>
#include <variant>

#include "absl/strings/str_cat.h"
#include "model/quote.h"
#include "model/status.h"

namespace vitrine {
namespace {

bool IsNeutral(const GgufValue& value) {
  if (const auto* number = std::get_if<uint64_t>(&value)) return *number == 0;
  if (const auto* number = std::get_if<int64_t>(&value)) return *number == 0;
  if (const auto* number = std::get_if<double>(&value)) return *number == 0.0;
  if (const auto* flag = std::get_if<bool>(&value)) return !*flag;
  if (const auto* text = std::get_if<std::string_view>(&value)) return text->empty();
  return std::get<GgufArray>(value).size == 0;
}

}  // namespace

absl::Status GgufConfigReader::Error(std::string_view key, std::string_view rule) const {
  return absl::InvalidArgumentError(
      absl::StrCat(file_.label(), ": key ", Quote(Key(key)), " ", std::string(rule)));
}

absl::Status GgufConfigReader::Unsupported(std::string_view key, std::string_view rule) const {
  return absl::UnimplementedError(
      absl::StrCat(file_.label(), ": key ", Quote(Key(key)), " ", std::string(rule)));
}

absl::StatusOr<int> GgufConfigReader::Int(std::string_view key, int min, int max) {
  const std::string whole_key = Key(key);
  VITRINE_ASSIGN_OR_RETURN(const uint64_t value, file_.Uint(whole_key));
  if (value < static_cast<uint64_t>(min) || value > static_cast<uint64_t>(max)) {
    return Error(key, absl::StrCat("is ", value, ", expected ", min, " to ", max));
  }
  read_.insert(whole_key);
  return static_cast<int>(value);
}

absl::StatusOr<int> GgufConfigReader::Int(std::string_view key, int min, int max, int fallback) {
  if (!Has(key)) return fallback;
  return Int(key, min, max);
}

absl::StatusOr<double> GgufConfigReader::PositiveFloat(std::string_view key) {
  const std::string whole_key = Key(key);
  VITRINE_ASSIGN_OR_RETURN(const double value, file_.Float(whole_key));
  const auto single = static_cast<float>(value);
  if (!std::isfinite(single) || single <= 0.0f) {
    return Error(key, absl::StrCat("is ", value, ", expected a finite number above 0"));
  }
  read_.insert(whole_key);
  return value;
}

absl::StatusOr<double> GgufConfigReader::PositiveFloat(std::string_view key, double fallback) {
  if (!Has(key)) return fallback;
  return PositiveFloat(key);
}

absl::StatusOr<bool> GgufConfigReader::Bool(std::string_view key, bool fallback) {
  if (!Has(key)) return fallback;
  const std::string whole_key = Key(key);
  read_.insert(whole_key);
  return file_.Bool(whole_key);
}

absl::StatusOr<std::string_view> GgufConfigReader::String(std::string_view key,
                                                          std::string_view fallback) {
  if (!Has(key)) return fallback;
  const std::string whole_key = Key(key);
  read_.insert(whole_key);
  return file_.String(whole_key);
}

absl::Status GgufConfigReader::CheckAllRead() const {
  const std::string prefix = architecture_ + ".";
  const auto& metadata = file_.metadata();
  for (auto entry = metadata.lower_bound(prefix);
       entry != metadata.end() && entry->first.starts_with(prefix); ++entry) {
    if (read_.contains(entry->first) || IsNeutral(entry->second)) continue;
    return Unsupported(entry->first.substr(prefix.size()),
                       "asks for a feature that is not supported");
  }
  return absl::OkStatus();
}

}  // namespace vitrine
