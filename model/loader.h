// The only place that knows the order of construction: file, config, tokenizer, weights,
// transformer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/config.h"
#include "model/tokenizer.h"
#include "model/transformer_runner.h"

namespace vitrine {

enum class KvDType { kAuto, kF32, kBF16, kQ8_0 };

struct LoadOptions {
  int context_length = 0;             // 0: what the model was trained for.
  int64_t kv_cache_bytes = 0;         // 0: chosen from the context length and max_step_sequences.
  KvDType kv_dtype = KvDType::kAuto;  // kAuto: f32 with exact numerics, bf16 with fast.
  int max_step_rows = 512;
  int max_step_sequences = 64;
  int max_traced_rows = 0;  // 0: no inspection.
};

struct LoadedModel {
  ModelConfig config;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<TransformerRunner> runner;  // Borrows the backend.
  std::string weight_types;       // "Q4_1 (210), F32 (61), Q8_0 (1)", most frequent first.
  DType kv_dtype = DType::kBF16;  // What kAuto became.
  size_t weight_bytes = 0;
  size_t kv_bytes = 0;
};

// `path` is a GGUF file. `backend` must outlive the result. Errors name the file, the tensor or key
// and the rule, and nothing of the file system beyond the last path component.
absl::StatusOr<LoadedModel> LoadModel(const std::string& path, Backend& backend,
                                      const LoadOptions& options);

}  // namespace vitrine
