// A GGUF file that may be the first of several parts (llama.cpp, tools/gguf-split): NAME-00001-of-
// 00003.gguf and its neighbours. The first part has the metadata, all of them have tensors.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/checkpoint.h"
#include "model/gguf.h"

namespace vitrine {

class GgufParts final : public Checkpoint {
 public:
  // `path` is a whole file or a first part, whose other parts lie beside it under their names.
  // INVALID_ARGUMENT where parts do not belong together; NOT_FOUND where one is missing.
  static absl::StatusOr<std::unique_ptr<GgufParts>> Open(const std::string& path);

  const GgufFile& first() const { return *parts_.front(); }  // It has the metadata.
  size_t num_parts() const { return parts_.size(); }

  const std::string& label() const override { return first().label(); }
  const TensorView* Find(std::string_view name) const override;
  std::span<const TensorView> tensors() const override { return tensors_; }

 private:
  GgufParts() = default;
  absl::Status AddPart(std::unique_ptr<GgufFile> part);
  absl::Status AddOtherParts(const std::string& path, int count);

  std::vector<std::unique_ptr<GgufFile>> parts_;
  std::vector<TensorView> tensors_;  // Part by part.
  std::map<std::string_view, size_t> tensor_index_;
};

}  // namespace vitrine
