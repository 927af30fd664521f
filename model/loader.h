// The only place that knows the order of construction: files, config, tokenizer, weights,
// transformer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/chat_template.h"
#include "model/config.h"
#include "model/model_files.h"
#include "model/tokenizer.h"
#include "model/transformer_runner.h"
#include "model/weights.h"

namespace vitrine {

enum class KvDType { kAuto, kF32, kBF16, kQ8_0 };

struct LoadOptions {
  int context_length = 0;             // 0: what the model was trained for.
  int64_t kv_cache_bytes = 0;         // 0: chosen from the context length and max_step_sequences.
  KvDType kv_dtype = KvDType::kAuto;  // kAuto: f32 with exact numerics, bf16 with fast.
  int max_step_rows = 512;
  int max_step_sequences = 64;
  int max_traced_rows = 0;  // 0: no inspection.
  WeightOptions weights = {};
};

// The weights of one type.
struct WeightShare {
  DType dtype = DType::kF32;
  int tensors = 0;
  size_t bytes = 0;
};

struct LoadedModel {
  ModelConfig config;
  std::unique_ptr<Tokenizer> tokenizer;
  // Else the reason why there are no chats: the model generates all the same.
  absl::StatusOr<ChatTemplate> chat_template = absl::NotFoundError("not loaded");
  std::unique_ptr<TransformerRunner> runner;  // Borrows the backend.
  SamplingDefaults sampling;
  std::vector<WeightShare> weight_shares;  // As they are computed with, largest first.
  int64_t parameters = 0;
  DType kv_dtype = DType::kBF16;  // What kAuto became.
  size_t weight_bytes = 0;
  size_t kv_bytes = 0;
};

// `path` is a GGUF file, the first part of one, or a Hugging Face folder. `backend` must outlive
// the result. Errors name the file, the tensor or key and the rule, and nothing of the file system
// beyond the last path component.
absl::StatusOr<LoadedModel> LoadModel(ModelFiles& files, Backend& backend,
                                      const LoadOptions& options);
absl::StatusOr<LoadedModel> LoadModel(const std::string& path, Backend& backend,
                                      const LoadOptions& options);

// What the tensors of a checkpoint take when matrices become `dtype` (none: stay what they are).
std::vector<WeightShare> ShareOfTypes(const Checkpoint& weights, std::optional<DType> dtype);

// "Q4_1 (210), F32 (61), Q8_0 (1)", in the order of `shares`.
std::string DescribeShares(const std::vector<WeightShare>& shares);

}  // namespace vitrine
