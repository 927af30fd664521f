// Byte-level byte-pair encoding, from plain tables. Const and thread-safe after Create.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "model/bpe_merges.h"
#include "model/pre_tokenizer.h"
#include "model/token_matcher.h"
#include "model/tokenizer.h"
#include "model/vocabulary.h"

namespace vitrine {

// Everything a byte-level tokenizer is made of. The texts are read during Create only.
struct BpeDefinition {
  std::vector<std::string_view> tokens;  // Texts in the byte alphabet; control tokens as they are.
  std::vector<TokenType> types;          // [tokens]
  std::vector<std::string_view> merges;  // "left right", most important first.
  std::string_view pre_tokenizer;        // A name that FindPreTokenizer knows.
  TokenId bos_id = -1;                   // -1: none.
  bool add_bos = false;
  std::vector<TokenId> eos_ids;
};

class BpeTokenizer final : public Tokenizer {
 public:
  // INVALID_ARGUMENT: a text is not UTF-8, a merge is not two tokens that give a third, an id is
  // outside the table. UNIMPLEMENTED: the pre-tokenizer is not known.
  static absl::StatusOr<std::unique_ptr<BpeTokenizer>> Create(const BpeDefinition& definition);

  absl::StatusOr<Encoding> Encode(std::string_view text,
                                  const EncodeOptions& options) const override;
  std::string_view TokenBytes(TokenId id) const override { return vocabulary_.Bytes(id); }
  bool IsControl(TokenId id) const override { return vocabulary_.IsControl(id); }
  int vocabulary() const override { return vocabulary_.size(); }
  std::string_view kind() const override { return kind_; }
  const std::vector<TokenId>& eos_ids() const override { return eos_ids_; }
  TokenId bos_id() const override { return bos_id_; }

 private:
  struct Work;

  explicit BpeTokenizer(const PreTokenizer& rule);

  // Tokens that ordinary text can become, by their text in the file.
  using TokenIds = absl::flat_hash_map<std::string_view, TokenId>;

  absl::Status AddTokens(const BpeDefinition& definition, TokenIds& ids);
  absl::Status AddMerges(const BpeDefinition& definition, const TokenIds& ids);
  absl::Status SetSpecialIds(const BpeDefinition& definition);
  void EncodeOrdinary(std::string_view text, size_t begin, size_t end, Work& work) const;

  const PreTokenizer& rule_;
  std::string kind_;
  Vocabulary vocabulary_;
  std::array<TokenId, 256> byte_ids_ = {};  // -1: the vocabulary has no token for this byte.
  BpeMerges merges_;
  // Ordinary tokens by their bytes, inside vocabulary_; empty unless the rule wants whole words.
  absl::flat_hash_map<std::string_view, TokenId> whole_words_;
  TokenMatcher user_defined_;
  TokenMatcher user_defined_and_control_;
  std::vector<TokenId> eos_ids_;
  TokenId bos_id_ = -1;
  bool add_bos_ = false;
};

}  // namespace vitrine
