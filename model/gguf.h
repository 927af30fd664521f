// Reader of GGUF files, versions 2 and 3 (specification: ggml/docs/gguf.md).
//
// The file is mapped read-only and parsed once. Every count, length, type and offset is checked
// against the bytes that are left before it is used, and nothing is allocated on a promise: a file
// that is truncated or hostile gives INVALID_ARGUMENT, one that needs what is not supported
// UNIMPLEMENTED, with the name of the key or tensor and the rule. Const and thread-safe after Open.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "model/checkpoint.h"
#include "model/mapped_file.h"

namespace vitrine {

// Element types of metadata values, numbered as in the file.
enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// An array inside the mapped file; elements are decoded on access, never copied as a whole.
struct GgufArray {
  GgufType element_type = GgufType::kUint8;
  uint64_t size = 0;
  std::string_view bytes;  // The elements as the file stores them.
};

using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray>;

class GgufFile final : public Checkpoint {
 public:
  // NOT_FOUND, INVALID_ARGUMENT (not a regular file, not GGUF, broken). Messages name the file's
  // last path component only. Vocabulary-only files (no tensors) are allowed.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path);
  // Parses bytes in memory, which must outlive the result. `label` names them in errors.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Parse(std::string_view bytes, std::string label);

  uint32_t version() const { return version_; }
  size_t bytes() const { return bytes_; }  // Of the whole file.
  const std::string& label() const override { return label_; }

  const TensorView* Find(std::string_view name) const override;
  std::span<const TensorView> tensors() const override { return tensors_; }

  // All metadata in key order. Keys are UTF-8.
  const std::map<std::string_view, GgufValue>& metadata() const { return metadata_; }
  bool Has(std::string_view key) const { return metadata_.find(key) != metadata_.end(); }

  // Typed look-ups. NOT_FOUND when the key is absent, INVALID_ARGUMENT when it has another type or
  // does not fit. Any integer type that holds a fitting value is accepted as an integer; in arrays,
  // those of 32 and 64 bits. Floats may be infinite or NaN.
  absl::StatusOr<uint64_t> Uint(std::string_view key) const;
  absl::StatusOr<double> Float(std::string_view key) const;
  absl::StatusOr<bool> Bool(std::string_view key) const;
  absl::StatusOr<std::string_view> String(std::string_view key) const;
  absl::StatusOr<std::vector<std::string_view>> StringArray(std::string_view key) const;
  absl::StatusOr<std::vector<int64_t>> IntArray(std::string_view key) const;
  absl::StatusOr<std::vector<float>> FloatArray(std::string_view key) const;

 private:
  friend class GgufParser;

  explicit GgufFile(std::string label) : label_(std::move(label)) {}
  absl::StatusOr<GgufArray> Array(std::string_view key) const;

  std::string label_;
  MappedFile mapping_;  // Owned when opened from a path.
  size_t bytes_ = 0;
  uint32_t version_ = 0;
  std::map<std::string_view, GgufValue> metadata_;
  std::vector<TensorView> tensors_;  // In file order.
  std::map<std::string_view, size_t> tensor_index_;
};

}  // namespace vitrine
