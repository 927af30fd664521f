// Readers of safetensors files and of the model folders that hold them
// (specification: https://github.com/huggingface/safetensors, "Format").
//
// Every rule of the format is checked before a tensor is handed out: the header is JSON without
// duplicate keys, every range has just the bytes of its shape, and the ranges cover the data
// without gap or overlap. INVALID_ARGUMENT or UNIMPLEMENTED name the file, the tensor and the rule.
// Const and thread-safe after Open.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/checkpoint.h"
#include "model/mapped_file.h"

namespace vitrine {

class SafetensorsFile final : public Checkpoint {
 public:
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);
  // Parses bytes in memory, which must outlive the result. `label` names them in errors.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Parse(std::string_view bytes,
                                                                std::string label);

  const std::string& label() const override { return label_; }
  const TensorView* Find(std::string_view name) const override;
  std::span<const TensorView> tensors() const override { return tensors_; }

 private:
  explicit SafetensorsFile(std::string label) : label_(std::move(label)) {}

  std::string label_;
  MappedFile mapping_;               // Owned when opened from a path.
  std::vector<TensorView> tensors_;  // In the order of their data.
  std::map<std::string, size_t, std::less<>> tensor_index_;
};

// The tensors of a Hugging Face folder: `model.safetensors`, or the shards that
// `model.safetensors.index.json` names. Every tensor of the index is in its shard, and every tensor
// of those shards is in the index.
class SafetensorsFolder final : public Checkpoint {
 public:
  static absl::StatusOr<std::unique_ptr<SafetensorsFolder>> Open(const std::string& folder);

  const std::string& label() const override { return label_; }
  const TensorView* Find(std::string_view name) const override;
  std::span<const TensorView> tensors() const override { return tensors_; }

 private:
  explicit SafetensorsFolder(std::string label) : label_(std::move(label)) {}

  absl::Status AddShards(const std::string& folder, const std::string& index_path);
  absl::Status AddShard(const std::string& path, const std::map<std::string, std::string>* index);

  std::string label_;
  std::vector<std::unique_ptr<SafetensorsFile>> shards_;
  std::vector<TensorView> tensors_;  // Shard by shard.
  std::map<std::string, size_t, std::less<>> tensor_index_;
};

}  // namespace vitrine
