// What a path to a model leads to: a GGUF file, the first part of a split one, or a Hugging Face
// folder. Nothing of the weights is read before LoadWeights.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/chat_template.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/sampling_defaults.h"
#include "model/tensor_map.h"
#include "model/tokenizer.h"

namespace vitrine {

struct ModelDescription {
  ModelConfig config;
  TensorNames names;
  SamplingDefaults sampling;
};

class ModelFiles {
 public:
  // Errors of all functions name the file and the rule, and nothing of the file system beyond the
  // last path component: NOT_FOUND, INVALID_ARGUMENT for what is broken, UNIMPLEMENTED for what is
  // not supported.
  static absl::StatusOr<std::unique_ptr<ModelFiles>> Open(const std::string& path);
  virtual ~ModelFiles() = default;

  virtual const std::string& label() const = 0;  // The last path component.
  virtual std::string format() const = 0;        // "GGUF version 3", "Hugging Face folder".
  // The family's name as the files give it; empty where they give none.
  virtual std::string architecture() const = 0;

  virtual absl::StatusOr<ModelDescription> Describe() const = 0;
  virtual absl::StatusOr<std::unique_ptr<Tokenizer>> CreateTokenizer() const = 0;
  // The tensors, as long as this object lives. Vocabulary-only files have none.
  virtual absl::StatusOr<const Checkpoint*> Weights() = 0;
  // Without templates where the model has none.
  virtual absl::StatusOr<ChatTemplateSource> ChatTemplates() const = 0;
};

}  // namespace vitrine
