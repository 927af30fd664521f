// The sections normalizer and pre_tokenizer of tokenizer.json: what happens to a text before it
// reaches the model.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "model/json.h"
#include "model/normalizer.h"
#include "model/pre_tokenizer.h"

namespace vitrine {

struct JsonTextRules {
  std::vector<NormalizerStep> normalizer;
  std::vector<NormalizerStep> preparation;  // What the pre-tokenizer changes in the text.
  std::vector<PieceScanner> pre_tokenizer;
  bool is_byte_level = false;  // The model sees bytes in the byte alphabet.
};

// `root` is the whole file, an object; `label` names it. UNIMPLEMENTED names a component, an option
// or a pattern that is not supported.
absl::StatusOr<JsonTextRules> ReadJsonTextRules(const JsonValue& root, const std::string& label);

}  // namespace vitrine
