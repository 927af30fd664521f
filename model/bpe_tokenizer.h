// Byte-level byte-pair encoding, from the plain tables of a GGUF file.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer.h"
#include "model/vocabulary.h"

namespace vitrine {

// Everything a byte-level tokenizer is made of. The texts are read during creation only.
struct BpeDefinition {
  std::vector<std::string_view> tokens;  // Texts in the byte alphabet; control tokens as they are.
  std::vector<TokenType> types;          // [tokens]
  std::vector<std::string_view> merges;  // "left right", most important first.
  std::string_view pre_tokenizer;        // A name that FindPreTokenizer knows.
  TokenId bos_id = -1;                   // -1: none.
  bool add_bos = false;
  std::vector<TokenId> eos_ids;
};

// INVALID_ARGUMENT: a text is not UTF-8, a merge is not two tokens that give a third, an id is
// outside the table. UNIMPLEMENTED: the pre-tokenizer is not known.
absl::StatusOr<std::unique_ptr<Tokenizer>> CreateBpeTokenizer(const BpeDefinition& definition);

}  // namespace vitrine
