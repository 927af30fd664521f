#include "model/bpe_tokenizer.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "model/bpe_model.h"
#include "model/byte_alphabet.h"
#include "model/byte_token.h"
#include "model/detokenizer.h"
#include "model/normalizer.h"
#include "model/pipeline_tokenizer.h"
#include "model/pre_tokenizer.h"
#include "model/quote.h"
#include "model/status.h"

namespace vitrine {
namespace {

constexpr char kSpaceMark[] = "\u2581";

// The bytes that a token of this text and type stands for; nullopt when it is a malformed byte
// token.
std::optional<std::string> BytesOfToken(std::string_view text, TokenType type,
                                        bool is_of_characters) {
  if (type == TokenType::kByte) {
    const std::optional<uint8_t> byte = ParseByteToken(text);
    if (!byte) return std::nullopt;
    return std::string(1, static_cast<char>(*byte));
  }
  if (type == TokenType::kNormal || type == TokenType::kUnused) {
    if (is_of_characters) return absl::StrReplaceAll(std::string(text), {{kSpaceMark, " "}});
    if (std::optional<std::string> bytes = DecodeByteAlphabet(text)) return bytes;
  }
  return std::string(text);
}

absl::Status CheckTables(const BpeDefinition& definition) {
  if (definition.tokens.empty()) return absl::InvalidArgumentError("the vocabulary is empty");
  if (definition.types.size() != definition.tokens.size()) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", definition.types.size(),
                                                   " token types for ", definition.tokens.size(),
                                                   " tokens"));
  }
  uint64_t bytes = 0;
  for (const std::string_view token : definition.tokens) bytes += token.size();
  if (bytes > UINT32_MAX || definition.tokens.size() > INT32_MAX) {
    return absl::InvalidArgumentError("the vocabulary holds 4 GiB of text or more");
  }
  return absl::OkStatus();
}

// Fills the token tables of `parts`, and `ids` with the tokens that ordinary text can become.
absl::Status AddTokens(const BpeDefinition& definition, TokenizerParts& parts, TokenIds& ids) {
  ids.reserve(definition.tokens.size());
  for (size_t i = 0; i < definition.tokens.size(); ++i) {
    const std::string_view text = definition.tokens[i];
    const TokenType type = definition.types[i];
    const auto id = static_cast<TokenId>(i);
    if (FindInvalidUtf8(text) != std::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrCat("token ", i, " is not UTF-8: ", Quote(text)));
    }
    const std::optional<std::string> bytes = BytesOfToken(text, type, definition.is_of_characters);
    if (!bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "token ", i, " is a byte token and not written <0x00> to <0xFF>: ", Quote(text)));
    }
    parts.vocabulary.Add(*bytes, type);
    const bool is_control = parts.vocabulary.IsControl(id);
    if (!is_control) ids.try_emplace(text, id);
    if (is_control || type == TokenType::kUserDefined) {
      parts.added_tokens.push_back({.text = std::string(text), .id = id, .is_control = is_control});
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<BpeMerge>> SplitMerges(const std::vector<std::string_view>& texts) {
  std::vector<BpeMerge> merges;
  merges.reserve(texts.size());
  for (const std::string_view text : texts) {
    const size_t space = text.find(' ');
    const bool is_pair = space != std::string_view::npos && space > 0 && space + 1 < text.size() &&
                         text.find(' ', space + 1) == std::string_view::npos;
    if (!is_pair) {
      return absl::InvalidArgumentError(absl::StrCat(
          "merge ", merges.size(), " is not two texts with one space between: ", Quote(text)));
    }
    merges.push_back({text.substr(0, space), text.substr(space + 1)});
  }
  return merges;
}

// What happens to a text before it is merged.
absl::Status AddRules(const BpeDefinition& definition, TokenizerParts& parts, BpeOptions& options) {
  if (definition.is_of_characters) {
    parts.kind = "bpe/characters";
    parts.normalizer = {Replace(" ", kSpaceMark)};
    options = {.is_byte_level = false, .byte_fallback = true};
    return absl::OkStatus();
  }
  const PreTokenizer* rule = FindPreTokenizer(definition.pre_tokenizer);
  if (rule == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("pre-tokenizer ", Quote(definition.pre_tokenizer), " is not supported"));
  }
  parts.kind = absl::StrCat("bpe/", std::string(rule->name));
  parts.pre_tokenizer.assign(rule->stages.begin(), rule->stages.end());
  options.whole_words = rule->whole_words;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> CreateBpeTokenizer(const BpeDefinition& definition) {
  VITRINE_RETURN_IF_ERROR(CheckTables(definition));
  if (definition.add_bos && definition.bos_id == -1) {
    return absl::InvalidArgumentError("a begin token is to be added and none is named");
  }
  TokenizerParts parts;
  BpeOptions options;
  VITRINE_RETURN_IF_ERROR(AddRules(definition, parts, options));
  TokenIds ids;
  VITRINE_RETURN_IF_ERROR(AddTokens(definition, parts, ids));
  VITRINE_ASSIGN_OR_RETURN(const std::vector<BpeMerge> merges, SplitMerges(definition.merges));
  VITRINE_ASSIGN_OR_RETURN(parts.model, BpeModel::Create(ids, merges, options));
  parts.bos_id = definition.bos_id;
  if (definition.add_bos) parts.prefix_ids = {definition.bos_id};
  parts.eos_ids = definition.eos_ids;
  return PipelineTokenizer::Create(std::move(parts));
}

}  // namespace vitrine
