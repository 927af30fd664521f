#include "model/sentencepiece_tokenizer.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "model/bpe_model.h"
#include "model/byte_token.h"
#include "model/detokenizer.h"
#include "model/pipeline_tokenizer.h"
#include "model/quote.h"
#include "model/status.h"
#include "model/unigram_model.h"

namespace vitrine {
namespace {

absl::Status CheckTables(const SentencePieceDefinition& definition) {
  const size_t tokens = definition.tokens.size();
  if (tokens == 0) return absl::InvalidArgumentError("the vocabulary is empty");
  if (definition.types.size() != tokens || definition.scores.size() != tokens) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", definition.types.size(),
                                                   " token types and ", definition.scores.size(),
                                                   " scores for ", tokens, " tokens"));
  }
  uint64_t bytes = 0;
  for (const std::string_view token : definition.tokens) bytes += token.size();
  if (bytes > UINT32_MAX || tokens > INT32_MAX / 2) {
    return absl::InvalidArgumentError("the vocabulary holds 4 GiB of text or more");
  }
  if (definition.add_bos && definition.bos_id == -1) {
    return absl::InvalidArgumentError("a begin token is to be added and none is named");
  }
  return absl::OkStatus();
}

// What the tables of a definition become.
struct Tokens {
  std::vector<ScoredPiece> pieces;
  ByteIds byte_ids = {};
  TokenId unknown_id = -1;
  std::vector<std::string_view> kept;  // What the normaliser does not change.
};

absl::Status AddToken(const SentencePieceDefinition& definition, size_t i, TokenizerParts& parts,
                      Tokens& tokens) {
  const std::string_view text = definition.tokens[i];
  const TokenType type = definition.types[i];
  const auto id = static_cast<TokenId>(i);
  if (FindInvalidUtf8(text) != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("token ", i, " is not UTF-8: ", Quote(text)));
  }
  if (type == TokenType::kByte) {
    const std::optional<uint8_t> byte = ParseByteToken(text);
    if (!byte) {
      return absl::InvalidArgumentError(absl::StrCat(
          "token ", i, " is a byte token and not written <0x00> to <0xFF>: ", Quote(text)));
    }
    parts.vocabulary.Add(std::string(1, static_cast<char>(*byte)), type);
    if (tokens.byte_ids[*byte] < 0) tokens.byte_ids[*byte] = id;
    return absl::OkStatus();
  }
  const bool is_control = type == TokenType::kControl || type == TokenType::kUnknown;
  if (type == TokenType::kUnknown && tokens.unknown_id < 0) tokens.unknown_id = id;
  std::string bytes(text);
  if (!is_control) absl::StrReplaceAll({{"\u2581", " "}}, &bytes);
  parts.vocabulary.Add(bytes, type);
  const bool is_user_defined = type == TokenType::kUserDefined;
  const bool in_normalized = definition.matches_normalized && is_user_defined;
  const bool in_lattice = in_normalized && definition.is_unigram;
  if (in_normalized) tokens.kept.push_back(text);
  if ((is_control || is_user_defined) && !in_lattice) {
    AddedToken added{.text = std::string(text), .id = id, .is_control = is_control};
    (in_normalized ? parts.normalized_added_tokens : parts.added_tokens)
        .push_back(std::move(added));
  }
  // An unused piece is never the result, so that no text gives it.
  const bool is_piece = type == TokenType::kNormal || is_user_defined;
  if (is_piece && !text.empty()) {
    tokens.pieces.push_back({text, id, definition.scores[i], in_lattice});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> CreateSentencePieceTokenizer(
    const SentencePieceDefinition& definition) {
  VITRINE_RETURN_IF_ERROR(CheckTables(definition));
  TokenizerParts parts;
  Tokens tokens;
  tokens.byte_ids.fill(-1);
  for (size_t i = 0; i < definition.tokens.size(); ++i) {
    VITRINE_RETURN_IF_ERROR(AddToken(definition, i, parts, tokens));
  }
  VITRINE_ASSIGN_OR_RETURN(CharacterMap map, CharacterMap::Parse(definition.character_map));
  parts.normalizer.push_back(
      SentencePieceNormalizer(std::move(map), definition.spaces, tokens.kept));
  parts.strips_first_space = definition.spaces.add_dummy_prefix;
  if (definition.is_unigram) {
    parts.kind = "sentencepiece/unigram";
    VITRINE_ASSIGN_OR_RETURN(parts.model, UnigramModel::Create(tokens.pieces, tokens.byte_ids,
                                                               {.unknown_id = tokens.unknown_id,
                                                                .is_single_precision = true}));
  } else {
    parts.kind = "sentencepiece/bpe";
    VITRINE_ASSIGN_OR_RETURN(
        parts.model,
        BpeModel::CreateFromScores(tokens.pieces, tokens.byte_ids,
                                   {.unknown_id = tokens.unknown_id, .fuse_unknown = true}));
  }
  parts.bos_id = definition.bos_id;
  if (definition.add_bos) parts.prefix_ids = {definition.bos_id};
  parts.eos_ids = definition.eos_ids;
  return PipelineTokenizer::Create(std::move(parts));
}

}  // namespace vitrine
