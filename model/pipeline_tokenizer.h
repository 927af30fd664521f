// The order in which a text becomes tokens, whatever the tokenizer: added tokens, normalisation,
// added tokens again, pre-tokens, subwords. This is the pipeline of the Python package tokenizers;
// what files of other formats ask for is put into the same places.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/added_tokens.h"
#include "model/normalizer.h"
#include "model/pre_tokenizer.h"
#include "model/subword_model.h"
#include "model/tokenizer.h"
#include "model/vocabulary.h"

namespace vitrine {

struct TokenizerParts {
  std::string kind;  // "bpe/smollm".
  Vocabulary vocabulary;
  std::vector<AddedToken> added_tokens;             // Found in the text as it is.
  std::vector<NormalizerStep> normalizer;           // For what is between them.
  std::vector<AddedToken> normalized_added_tokens;  // Found in the normalised text.
  std::vector<NormalizerStep> preparation;          // For what is between those.
  std::vector<PieceScanner> pre_tokenizer;          // None: all of it is one pre-token.
  std::unique_ptr<SubwordModel> model;
  bool strips_first_space = false;  // A text has a space in front that is not its own.
  std::vector<TokenId> prefix_ids;  // Around the text, with EncodeOptions::add_bos.
  std::vector<TokenId> suffix_ids;
  TokenId bos_id = -1;  // -1: none.
  std::vector<TokenId> eos_ids;
};

class PipelineTokenizer final : public Tokenizer {
 public:
  // INVALID_ARGUMENT: a begin or end token is outside the vocabulary.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(TokenizerParts parts);

  absl::StatusOr<Encoding> Encode(std::string_view text,
                                  const EncodeOptions& options) const override;
  std::string_view TokenBytes(TokenId id) const override { return parts_.vocabulary.Bytes(id); }
  std::string Decode(std::span<const TokenId> ids) const override;
  bool IsControl(TokenId id) const override { return parts_.vocabulary.IsControl(id); }
  int vocabulary() const override { return parts_.vocabulary.size(); }
  std::string_view kind() const override { return parts_.kind; }
  const std::vector<TokenId>& eos_ids() const override { return parts_.eos_ids; }
  TokenId bos_id() const override { return parts_.bos_id; }

 private:
  struct Work;

  explicit PipelineTokenizer(TokenizerParts parts);

  void EncodeSegment(size_t begin, size_t end, Work& work) const;
  void EncodeNormalized(const AlignedText& text, bool is_start, Work& work) const;
  void EncodeText(std::string_view text, size_t offset, Work& work) const;

  TokenizerParts parts_;
  AddedTokenMatcher added_tokens_;
  AddedTokenMatcher normalized_added_tokens_;
};

}  // namespace vitrine
