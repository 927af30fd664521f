#include "model/tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/bpe_tokenizer.h"
#include "model/pre_tokenizer.h"
#include "model/quote.h"
#include "model/sentencepiece_tokenizer.h"
#include "model/status.h"

namespace vitrine {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

std::string Key(std::string_view name) { return std::string(kPrefix).append(name); }

// A special id under tokenizer.ggml.`name`: -1 when the file has none. Writers without an unsigned
// "none" leave 2^32 - 1.
absl::StatusOr<TokenId> SpecialId(const GgufFile& file, std::string_view name, size_t tokens) {
  const std::string key = Key(name);
  if (!file.Has(key)) return -1;
  VITRINE_ASSIGN_OR_RETURN(const uint64_t id, file.Uint(key));
  if (id == UINT32_MAX) return -1;
  if (id >= tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, " is ", id, " and the vocabulary has ", tokens, " tokens"));
  }
  return static_cast<TokenId>(id);
}

absl::StatusOr<bool> Flag(const GgufFile& file, std::string_view name, bool absent) {
  const std::string key = Key(name);
  return file.Has(key) ? file.Bool(key) : absl::StatusOr<bool>(absent);
}

absl::StatusOr<std::vector<TokenType>> TokenTypes(const GgufFile& file, size_t tokens) {
  const std::string key = Key("token_type");
  if (!file.Has(key)) return std::vector<TokenType>(tokens, TokenType::kNormal);
  VITRINE_ASSIGN_OR_RETURN(const std::vector<int64_t> values, file.IntArray(key));
  if (values.size() != tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, " has ", values.size(), " entries for ", tokens, " tokens"));
  }
  std::vector<TokenType> types;
  types.reserve(tokens);
  for (size_t i = 0; i < tokens; ++i) {
    const bool is_known = values[i] >= static_cast<int64_t>(TokenType::kNormal) &&
                          values[i] <= static_cast<int64_t>(TokenType::kByte);
    if (!is_known) {
      return absl::InvalidArgumentError(
          absl::StrCat(key, "[", i, "] is ", values[i], "; token types are 1 to 6"));
    }
    types.push_back(static_cast<TokenType>(values[i]));
  }
  return types;
}

// Keys that this tokenizer has no use for and that are still checked: a file that is wrong about
// them is wrong elsewhere as well.
absl::Status CheckUnusedKeys(const GgufFile& file, size_t tokens) {
  for (const std::string_view name :
       {"padding_token_id", "unknown_token_id", "seperator_token_id", "mask_token_id"}) {
    VITRINE_RETURN_IF_ERROR(SpecialId(file, name, tokens).status());
  }
  const std::string scores = Key("scores");
  if (!file.Has(scores)) return absl::OkStatus();
  VITRINE_ASSIGN_OR_RETURN(const std::vector<float> values, file.FloatArray(scores));
  if (values.size() == tokens) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(scores, " has ", values.size(), " entries for ", tokens, " tokens"));
}

absl::StatusOr<std::vector<TokenId>> EndIds(const GgufFile& file, size_t tokens) {
  std::vector<TokenId> ids;
  for (const std::string_view name : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    VITRINE_ASSIGN_OR_RETURN(const TokenId id, SpecialId(file, name, tokens));
    const bool is_new = std::find(ids.begin(), ids.end(), id) == ids.end();
    if (id >= 0 && is_new) ids.push_back(id);
  }
  return ids;
}

// Names the pre-tokenizer; true where texts have a begin token unless the file says otherwise.
absl::StatusOr<bool> ReadPreTokenizer(const GgufFile& file, BpeDefinition& definition) {
  definition.pre_tokenizer = "default";
  if (file.Has(Key("pre"))) {
    VITRINE_ASSIGN_OR_RETURN(definition.pre_tokenizer, file.String(Key("pre")));
  }
  const PreTokenizer* rule = FindPreTokenizer(definition.pre_tokenizer);
  if (rule != nullptr) return rule->add_bos_by_default;
  return absl::UnimplementedError(
      absl::StrCat("tokenizer.ggml.pre ", Quote(definition.pre_tokenizer), " is not supported"));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> CreateBpe(const GgufFile& file, bool is_of_characters) {
  BpeDefinition definition;
  definition.is_of_characters = is_of_characters;
  bool adds_bos = true;
  if (!is_of_characters) {
    VITRINE_ASSIGN_OR_RETURN(adds_bos, ReadPreTokenizer(file, definition));
  }
  VITRINE_ASSIGN_OR_RETURN(definition.tokens, file.StringArray(Key("tokens")));
  VITRINE_ASSIGN_OR_RETURN(definition.merges, file.StringArray(Key("merges")));
  const size_t tokens = definition.tokens.size();
  VITRINE_ASSIGN_OR_RETURN(definition.types, TokenTypes(file, tokens));
  VITRINE_ASSIGN_OR_RETURN(definition.bos_id, SpecialId(file, "bos_token_id", tokens));
  VITRINE_ASSIGN_OR_RETURN(definition.add_bos, Flag(file, "add_bos_token", adds_bos));
  VITRINE_ASSIGN_OR_RETURN(definition.eos_ids, EndIds(file, tokens));
  VITRINE_ASSIGN_OR_RETURN(const bool add_eos, Flag(file, "add_eos_token", false));
  if (add_eos) return absl::UnimplementedError("tokenizer.ggml.add_eos_token is not supported");
  VITRINE_RETURN_IF_ERROR(CheckUnusedKeys(file, tokens));
  return CreateBpeTokenizer(definition);
}

// The bytes of tokenizer.ggml.precompiled_charsmap, an array of bytes; empty where there is none.
absl::StatusOr<std::string> CharacterMapBytes(const GgufFile& file) {
  const std::string key = Key("precompiled_charsmap");
  const auto entry = file.metadata().find(key);
  if (entry == file.metadata().end()) return std::string();
  const auto* array = std::get_if<GgufArray>(&entry->second);
  const bool is_bytes = array != nullptr && (array->element_type == GgufType::kUint8 ||
                                             array->element_type == GgufType::kInt8);
  if (!is_bytes) return absl::InvalidArgumentError(absl::StrCat(key, " is not an array of bytes"));
  return std::string(array->bytes);
}

// What a key means that a file leaves out is what llama.cpp takes it for.
absl::StatusOr<std::unique_ptr<Tokenizer>> CreateSentencePiece(const GgufFile& file,
                                                               bool is_unigram) {
  SentencePieceDefinition definition;
  definition.is_unigram = is_unigram;
  VITRINE_ASSIGN_OR_RETURN(definition.tokens, file.StringArray(Key("tokens")));
  const size_t tokens = definition.tokens.size();
  VITRINE_ASSIGN_OR_RETURN(definition.types, TokenTypes(file, tokens));
  VITRINE_ASSIGN_OR_RETURN(definition.scores, file.FloatArray(Key("scores")));
  VITRINE_RETURN_IF_ERROR(CheckUnusedKeys(file, tokens));
  VITRINE_ASSIGN_OR_RETURN(definition.character_map, CharacterMapBytes(file));
  SpaceRules& spaces = definition.spaces;
  VITRINE_ASSIGN_OR_RETURN(spaces.add_dummy_prefix, Flag(file, "add_space_prefix", true));
  VITRINE_ASSIGN_OR_RETURN(spaces.remove_extra_whitespaces,
                           Flag(file, "remove_extra_whitespaces", false));
  VITRINE_ASSIGN_OR_RETURN(definition.bos_id, SpecialId(file, "bos_token_id", tokens));
  const bool has_bos = definition.bos_id >= 0;
  VITRINE_ASSIGN_OR_RETURN(definition.add_bos, Flag(file, "add_bos_token", has_bos && !is_unigram));
  VITRINE_ASSIGN_OR_RETURN(definition.eos_ids, EndIds(file, tokens));
  VITRINE_ASSIGN_OR_RETURN(const bool add_eos, Flag(file, "add_eos_token", false));
  if (add_eos) return absl::UnimplementedError("tokenizer.ggml.add_eos_token is not supported");
  return CreateSentencePieceTokenizer(definition);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> CreateTokenizer(const GgufFile& file) {
  VITRINE_ASSIGN_OR_RETURN(const std::string_view model, file.String(Key("model")));
  if (model == "gpt2") return CreateBpe(file, false);
  if (model == "gemma4") return CreateBpe(file, true);
  if (model == "llama") return CreateSentencePiece(file, false);
  if (model == "t5") return CreateSentencePiece(file, true);
  return absl::UnimplementedError(
      absl::StrCat("tokenizer.ggml.model ", Quote(model), " is not supported"));
}

}  // namespace vitrine
