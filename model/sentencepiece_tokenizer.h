// SentencePiece tokenizers (https://github.com/google/sentencepiece): byte-pair encoding by scores,
// or a unigram model, over text in which spaces are written as U+2581.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/sentencepiece_normalizer.h"
#include "model/tokenizer.h"
#include "model/vocabulary.h"

namespace vitrine {

// Everything such a tokenizer is made of. The texts are read during creation only.
struct SentencePieceDefinition {
  bool is_unigram = false;               // False: byte-pair encoding.
  std::vector<std::string_view> tokens;  // Texts as the file writes them.
  std::vector<float> scores;             // [tokens]
  std::vector<TokenType> types;          // [tokens]
  std::string character_map;             // precompiled_charsmap; may be empty.
  SpaceRules spaces;
  // False: user-defined tokens are found in the text as it is. True, as in the library: they pass
  // the normaliser unchanged and are found in what it gives, by a unigram model as pieces of great
  // likelihood.
  bool matches_normalized = false;
  TokenId bos_id = -1;  // -1: none.
  bool add_bos = false;
  std::vector<TokenId> eos_ids;
};

// INVALID_ARGUMENT: a text is not UTF-8, a byte token not written <0x00> to <0xFF>, a score not
// finite, an id outside the table.
absl::StatusOr<std::unique_ptr<Tokenizer>> CreateSentencePieceTokenizer(
    const SentencePieceDefinition& definition);

// Reads a tokenizer.model, a serialized sentencepiece.ModelProto; `label` names it in errors. The
// begin token is put in front of a text where there is one, unless `add_bos` is false; the end
// token counts where `eos_ids` is empty. UNIMPLEMENTED names a model type or an option that is not
// supported.
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseSentencePieceModel(std::string_view bytes,
                                                                   const std::string& label,
                                                                   std::vector<TokenId> eos_ids,
                                                                   bool add_bos = true);

}  // namespace vitrine
