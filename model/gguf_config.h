// Hyper-parameters of a GGUF file, range-checked, and the list of those that nobody has read.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/gguf.h"

namespace vitrine {

// Reads keys of one architecture: "attention.head_count" stands for "llama.attention.head_count".
// All errors name the file and the whole key.
class GgufConfigReader {
 public:
  // `tensors` are those of `file`, or of all parts of which it is the first.
  GgufConfigReader(const GgufFile& file, const Checkpoint& tensors, std::string architecture)
      : file_(file), tensors_(tensors), architecture_(std::move(architecture)) {}

  const Checkpoint& tensors() const { return tensors_; }
  const std::string& architecture() const { return architecture_; }
  bool Has(std::string_view key) const { return file_.Has(Key(key)); }

  // The value, which must be there, from `min` to `max`.
  absl::StatusOr<int> Int(std::string_view key, int min, int max);
  // The value, or `fallback` where the file has none.
  absl::StatusOr<int> Int(std::string_view key, int min, int max, int fallback);

  // A finite float above zero that is one in single precision, too.
  absl::StatusOr<double> PositiveFloat(std::string_view key);
  absl::StatusOr<double> PositiveFloat(std::string_view key, double fallback);

  absl::StatusOr<bool> Bool(std::string_view key, bool fallback);
  absl::StatusOr<std::string_view> String(std::string_view key, std::string_view fallback);

  // Marks a key that only informs: whatever it says changes no result.
  void Ignore(std::string_view key) { read_.insert(Key(key)); }

  // UNIMPLEMENTED for a key of the architecture that was not read and is not neutral (zero, false
  // or empty): it would silently change the results.
  absl::Status CheckAllRead() const;

  // INVALID_ARGUMENT "FILE: KEY RULE" and UNIMPLEMENTED of the same form.
  absl::Status Error(std::string_view key, std::string_view rule) const;
  absl::Status Unsupported(std::string_view key, std::string_view rule) const;

 private:
  std::string Key(std::string_view key) const { return architecture_ + "." + std::string(key); }

  const GgufFile& file_;
  const Checkpoint& tensors_;
  std::string architecture_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace vitrine
