// Reader of tokenizer.json, the format of the Python package tokenizers
// (https://github.com/huggingface/tokenizers, "tokenizers/src/tokenizer/serialization.rs").
//
// A tokenizer is read as a whole or refused: INVALID_ARGUMENT names the member that breaks a rule,
// UNIMPLEMENTED the component or pattern that is not supported.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer.h"

namespace vitrine {

// What other files say about special tokens. A text that is no token counts as none.
struct SpecialTokens {
  std::string bos_text = {};  // Goes before bos_id.
  TokenId bos_id = -1;        // -1: none.
  std::string eos_text = {};  // Ends an answer, as do eos_ids.
  std::vector<TokenId> eos_ids = {};
};

// `text` is a whole tokenizer.json; `label` names it in errors. Begin and end tokens are put around
// a text as its post_processor says. INVALID_ARGUMENT also when an id of `special` is no token.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizerJson(std::string_view text,
                                                              std::string_view label,
                                                              SpecialTokens special);

}  // namespace vitrine
