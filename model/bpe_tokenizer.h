// Byte-pair encoding, of bytes or of characters, from the plain tables of a GGUF file.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer.h"
#include "model/vocabulary.h"

namespace vitrine {

// Everything such a tokenizer is made of. The texts are read during creation only.
struct BpeDefinition {
  // Texts in the byte alphabet; control tokens as they are. With `is_of_characters` plain texts
  // with U+2581 for spaces, and <0x00> to <0xFF> for what has no other token (Gemma 4).
  std::vector<std::string_view> tokens;
  bool is_of_characters = false;
  std::vector<TokenType> types;          // [tokens]
  std::vector<std::string_view> merges;  // "left right", most important first.
  std::string_view pre_tokenizer;        // A name that FindPreTokenizer knows; for bytes only.
  TokenId bos_id = -1;                   // -1: none.
  bool add_bos = false;
  std::vector<TokenId> eos_ids;
};

// INVALID_ARGUMENT: a text is not UTF-8, a merge is not two tokens that give a third, an id is
// outside the table. UNIMPLEMENTED: the pre-tokenizer is not known.
absl::StatusOr<std::unique_ptr<Tokenizer>> CreateBpeTokenizer(const BpeDefinition& definition);

}  // namespace vitrine
