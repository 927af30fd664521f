// Finds the tokenizer in the files of a model.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/tokenizer.h"
#include "model/tokenizer_json.h"

namespace vitrine {

// The tokenizer of a Hugging Face folder: its tokenizer.json, or its tokenizer.model where there is
// none. For tokenizer.json `special` holds the ids of generation_config.json or config.json; the
// texts come from tokenizer_config.json, where eos_token counts only if special.eos_ids is empty.
// add_bos_token changes nothing: the post_processor of tokenizer.json holds, as in transformers. A
// tokenizer.model names its own begin token, and an end token that counts if special.eos_ids is
// empty. NOT_FOUND when neither file is there. Errors name files without their folder.
absl::StatusOr<std::unique_ptr<Tokenizer>> ReadTokenizerFolder(const std::string& folder,
                                                               const SpecialTokens& special);

// The tokenizer of whatever `path` is: a folder, a tokenizer.json under any name that ends in
// .json, a tokenizer.model likewise, or a GGUF file, with or without weights.
absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path);

}  // namespace vitrine
