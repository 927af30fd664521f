#include "model/tokenizer_json.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/bpe_model.h"
#include "model/byte_token.h"
#include "model/json.h"
#include "model/json_config.h"
#include "model/json_text_rules.h"
#include "model/json_token_texts.h"
#include "model/pipeline_tokenizer.h"
#include "model/quote.h"
#include "model/status.h"
#include "model/unigram_model.h"

namespace vitrine {
namespace {

constexpr size_t kMaxFileBytes = size_t{256} << 20;
constexpr size_t kMaxValues = 8'000'000;

// Bounds the memory that ids with large gaps between them can take.
constexpr int kMaxTokenId = (1 << 22) - 1;

// A token of the table that is being read.
struct JsonToken {
  std::string_view text;  // Inside the parsed file.
  bool is_assigned = false;
  bool is_added = false;
  bool is_control = false;
};

// Reads one file; the order of the functions is that of the calls.
class TokenizerJsonReader {
 public:
  TokenizerJsonReader(const JsonValue& root, std::string label, SpecialTokens special)
      : root_(root), label_(std::move(label)), special_(std::move(special)) {}

  absl::StatusOr<std::unique_ptr<Tokenizer>> Read();

 private:
  absl::Status Error(std::string_view where, std::string_view rule) const {
    return absl::InvalidArgumentError(
        absl::StrCat(label_, ": ", std::string(where), " ", std::string(rule)));
  }

  absl::StatusOr<JsonToken*> Assign(int64_t id, std::string_view text, std::string_view where);
  absl::Status ReadVocabulary(const JsonValue& model);
  absl::Status ReadScoredVocabulary(const JsonValue& model);
  absl::Status ReadAddedTokens();
  absl::Status ReadAddedToken(const JsonValue& value, const std::string& where);
  absl::Status FillVocabulary(const JsonTokenTexts& texts);
  absl::StatusOr<std::vector<BpeMerge>> ReadMerges(const JsonValue& model) const;
  absl::Status ReadBpe(const JsonConfigReader& model, const JsonValue& value, bool is_byte_level);
  absl::Status ReadUnigram(const JsonConfigReader& model, bool is_byte_level);
  absl::Status ReadPostProcessor();
  absl::Status ReadTemplate(const JsonValue& processor, const JsonConfigReader& reader);
  void SetSpecialIds();

  const JsonValue& root_;
  std::string label_;
  SpecialTokens special_;
  TokenizerParts parts_;
  std::vector<JsonToken> tokens_;  // By id.
  TokenIds ids_;                   // Of the model's own vocabulary.
  std::vector<double> scores_;     // By id, of a unigram model.
};

absl::StatusOr<JsonToken*> TokenizerJsonReader::Assign(int64_t id, std::string_view text,
                                                       std::string_view where) {
  if (id < 0 || id > kMaxTokenId) {
    return Error(where, absl::StrCat("gives ", Quote(text), " the id ", id, ", expected 0 to ",
                                     kMaxTokenId));
  }
  const auto index = static_cast<size_t>(id);
  if (index >= tokens_.size()) tokens_.resize(index + 1);
  JsonToken& token = tokens_[index];
  if (token.is_assigned && token.text != text) {
    return Error(where, absl::StrCat("gives the id ", id, " to ", Quote(token.text), " and to ",
                                     Quote(text)));
  }
  token.is_assigned = true;
  token.text = text;
  return &token;
}

absl::Status TokenizerJsonReader::ReadVocabulary(const JsonValue& model) {
  constexpr std::string_view kWhere = "model.vocab";
  const JsonValue* vocabulary = model.Find("vocab");
  if (vocabulary == nullptr || vocabulary->AsObject() == nullptr) {
    return Error(kWhere, "is missing or not an object");
  }
  ids_.reserve(vocabulary->AsObject()->size());
  for (const auto& [text, id] : *vocabulary->AsObject()) {
    if (id.AsInt() == nullptr) {
      return Error(kWhere, absl::StrCat("gives ", Quote(text), " ", std::string(id.kind()),
                                        ", expected a token id"));
    }
    VITRINE_RETURN_IF_ERROR(Assign(*id.AsInt(), text, kWhere).status());
    ids_.emplace(text, static_cast<TokenId>(*id.AsInt()));
  }
  return absl::OkStatus();
}

// A unigram model lists pairs of a text and its score; the id is the place in the list.
absl::Status TokenizerJsonReader::ReadScoredVocabulary(const JsonValue& model) {
  constexpr std::string_view kWhere = "model.vocab";
  const JsonValue* vocabulary = model.Find("vocab");
  if (vocabulary == nullptr || vocabulary->AsArray() == nullptr) {
    return Error(kWhere, "is missing or not an array");
  }
  for (const JsonValue& entry : *vocabulary->AsArray()) {
    const JsonValue::Array* pair = entry.AsArray();
    const bool is_pair = pair != nullptr && pair->size() == 2 && (*pair)[0].AsString() != nullptr &&
                         ((*pair)[1].AsFloat() != nullptr || (*pair)[1].AsInt() != nullptr);
    if (!is_pair) {
      return Error(absl::StrCat(std::string(kWhere), "[", scores_.size(), "]"),
                   "is not a pair of a string and a number");
    }
    const auto id = static_cast<int64_t>(scores_.size());
    VITRINE_RETURN_IF_ERROR(Assign(id, *(*pair)[0].AsString(), kWhere).status());
    ids_.emplace(*(*pair)[0].AsString(), static_cast<TokenId>(id));
    const double* score = (*pair)[1].AsFloat();
    scores_.push_back(score != nullptr ? *score : static_cast<double>(*(*pair)[1].AsInt()));
  }
  return absl::OkStatus();
}

absl::Status TokenizerJsonReader::ReadAddedToken(const JsonValue& value, const std::string& where) {
  if (value.AsObject() == nullptr) return Error(where, "is not an object");
  const JsonConfigReader reader(value, absl::StrCat(label_, ": ", where));
  VITRINE_ASSIGN_OR_RETURN(const int id, reader.Int("id", 0, kMaxTokenId));
  const JsonValue* content = value.Find("content");
  if (content == nullptr || content->AsString() == nullptr) {
    return reader.Error("content", "is missing or not a string");
  }
  const std::string& text = *content->AsString();
  AddedToken added{.text = text, .id = id};
  VITRINE_ASSIGN_OR_RETURN(added.is_control, reader.Bool("special", false));
  VITRINE_ASSIGN_OR_RETURN(added.lstrip, reader.Bool("lstrip", false));
  VITRINE_ASSIGN_OR_RETURN(added.rstrip, reader.Bool("rstrip", false));
  VITRINE_ASSIGN_OR_RETURN(added.single_word, reader.Bool("single_word", false));
  VITRINE_ASSIGN_OR_RETURN(const bool normalized, reader.Bool("normalized", !added.is_control));
  if (const auto known = ids_.find(text); known != ids_.end() && known->second != id) {
    return Error(where, absl::StrCat("gives ", Quote(text), " the id ", id,
                                     " and model.vocab the id ", known->second));
  }
  VITRINE_ASSIGN_OR_RETURN(JsonToken * token, Assign(id, text, where));
  token->is_added = true;
  token->is_control = added.is_control;
  if (normalized) {
    parts_.normalized_added_tokens.push_back(std::move(added));
  } else {
    parts_.added_tokens.push_back(std::move(added));
  }
  return absl::OkStatus();
}

absl::Status TokenizerJsonReader::ReadAddedTokens() {
  constexpr std::string_view kWhere = "added_tokens";
  const JsonValue* added = root_.Find(kWhere);
  if (added == nullptr || added->is_null()) return absl::OkStatus();
  if (added->AsArray() == nullptr) return Error(kWhere, "is not an array");
  for (size_t i = 0; i < added->AsArray()->size(); ++i) {
    VITRINE_RETURN_IF_ERROR(
        ReadAddedToken((*added->AsArray())[i], absl::StrCat(std::string(kWhere), "[", i, "]")));
  }
  return absl::OkStatus();
}

// An id that no text has is a token that is never used.
absl::Status TokenizerJsonReader::FillVocabulary(const JsonTokenTexts& texts) {
  uint64_t bytes = 0;
  for (const JsonToken& token : tokens_) bytes += token.text.size();
  if (tokens_.empty()) return Error("model.vocab", "is empty");
  if (bytes > UINT32_MAX) return Error("model.vocab", "holds 4 GiB of text or more");
  parts_.vocabulary.Reserve(tokens_.size(), bytes);
  for (const JsonToken& token : tokens_) {
    if (!token.is_assigned) {
      parts_.vocabulary.Add("", TokenType::kUnused);
    } else if (token.is_control) {
      parts_.vocabulary.Add(token.text, TokenType::kControl);
    } else if (token.is_added) {
      parts_.vocabulary.Add(texts.BytesOfAdded(token.text), TokenType::kUserDefined);
    } else {
      const bool is_byte = texts.IsByteToken(token.text);
      parts_.vocabulary.Add(texts.BytesOf(token.text),
                            is_byte ? TokenType::kByte : TokenType::kNormal);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<BpeMerge>> TokenizerJsonReader::ReadMerges(
    const JsonValue& model) const {
  constexpr std::string_view kWhere = "model.merges";
  const JsonValue* list = model.Find("merges");
  if (list == nullptr || list->AsArray() == nullptr) {
    return Error(kWhere, "is missing or not an array");
  }
  std::vector<BpeMerge> merges;
  merges.reserve(list->AsArray()->size());
  for (const JsonValue& merge : *list->AsArray()) {
    const auto error = [&](std::string_view rule) {
      return Error(absl::StrCat(std::string(kWhere), "[", merges.size(), "]"), rule);
    };
    if (const JsonValue::Array* pair = merge.AsArray()) {
      const bool is_pair =
          pair->size() == 2 && (*pair)[0].AsString() != nullptr && (*pair)[1].AsString() != nullptr;
      if (!is_pair) return error("is not a pair of strings");
      merges.push_back({*(*pair)[0].AsString(), *(*pair)[1].AsString()});
      continue;
    }
    if (merge.AsString() == nullptr) {
      return error(absl::StrCat("is ", std::string(merge.kind()),
                                ", expected a string or a pair of strings"));
    }
    const std::string_view text = *merge.AsString();
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      return error(absl::StrCat("is ", Quote(text), ", not two texts with one space"));
    }
    merges.push_back({text.substr(0, space), text.substr(space + 1)});
  }
  return merges;
}

absl::Status TokenizerJsonReader::ReadBpe(const JsonConfigReader& model, const JsonValue& value,
                                          bool is_byte_level) {
  for (const std::string_view affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    VITRINE_ASSIGN_OR_RETURN(const std::string text, model.String(affix, ""));
    if (!text.empty()) return model.Unsupported(affix, "is set, which is not supported");
  }
  const JsonValue* dropout = value.Find("dropout");
  if (dropout != nullptr && !dropout->is_null()) {
    const bool is_zero = (dropout->AsFloat() != nullptr && *dropout->AsFloat() == 0.0) ||
                         (dropout->AsInt() != nullptr && *dropout->AsInt() == 0);
    if (!is_zero) return model.Unsupported("dropout", "is not 0: encoding would be random");
  }
  BpeOptions options{.is_byte_level = is_byte_level};
  VITRINE_ASSIGN_OR_RETURN(options.whole_words, model.Bool("ignore_merges", false));
  VITRINE_ASSIGN_OR_RETURN(options.byte_fallback, model.Bool("byte_fallback", false));
  VITRINE_ASSIGN_OR_RETURN(options.fuse_unknown, model.Bool("fuse_unk", false));
  VITRINE_ASSIGN_OR_RETURN(const std::string unknown, model.String("unk_token", ""));
  if (!unknown.empty()) {
    const auto found = ids_.find(unknown);
    if (found == ids_.end()) {
      return model.Error("unk_token", absl::StrCat("is ", Quote(unknown), ", not in vocab"));
    }
    options.unknown_id = found->second;
  }
  VITRINE_ASSIGN_OR_RETURN(const std::vector<BpeMerge> merges, ReadMerges(value));
  absl::StatusOr<std::unique_ptr<BpeModel>> bpe = BpeModel::Create(ids_, merges, options);
  if (!bpe.ok()) return Error("model.merges:", std::string(bpe.status().message()));
  parts_.model = *std::move(bpe);
  parts_.kind = is_byte_level ? "bpe/bytes" : "bpe/characters";
  return absl::OkStatus();
}

absl::Status TokenizerJsonReader::ReadUnigram(const JsonConfigReader& model, bool is_byte_level) {
  if (is_byte_level) return model.Unsupported("type", "is Unigram with ByteLevel");
  VITRINE_ASSIGN_OR_RETURN(const bool byte_fallback, model.Bool("byte_fallback", false));
  UnigramOptions options;
  VITRINE_ASSIGN_OR_RETURN(options.unknown_id,
                           model.Int("unk_id", 0, static_cast<int>(scores_.size()) - 1, -1));
  ByteIds byte_ids;
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = ids_.find(ByteTokenText(static_cast<uint8_t>(byte)));
    byte_ids[byte] = byte_fallback && found != ids_.end() ? found->second : -1;
  }
  std::vector<ScoredPiece> pieces;
  for (size_t i = 0; i < scores_.size(); ++i) {
    if (tokens_[i].is_control) continue;
    pieces.push_back({tokens_[i].text, static_cast<TokenId>(i), scores_[i]});
  }
  absl::StatusOr<std::unique_ptr<UnigramModel>> unigram =
      UnigramModel::Create(pieces, byte_ids, options);
  if (!unigram.ok()) return Error("model.vocab:", std::string(unigram.status().message()));
  parts_.model = *std::move(unigram);
  parts_.kind = "unigram";
  return absl::OkStatus();
}

// What stands before and behind "A" in the template of a single text.
absl::Status TokenizerJsonReader::ReadTemplate(const JsonValue& processor,
                                               const JsonConfigReader& reader) {
  const JsonValue* single = processor.Find("single");
  if (single == nullptr || single->AsArray() == nullptr) {
    return reader.Error("single", "is missing or not an array");
  }
  std::vector<TokenId>* side = &parts_.prefix_ids;
  for (const JsonValue& piece : *single->AsArray()) {
    if (piece.Find("Sequence") != nullptr) {
      if (side == &parts_.suffix_ids) return reader.Unsupported("single", "holds the text twice");
      side = &parts_.suffix_ids;
      continue;
    }
    const JsonValue* token = piece.Find("SpecialToken");
    const JsonValue* name = token == nullptr ? nullptr : token->Find("id");
    if (name == nullptr || name->AsString() == nullptr) {
      return reader.Error("single", "holds what is neither a Sequence nor a SpecialToken");
    }
    VITRINE_ASSIGN_OR_RETURN(const std::optional<JsonConfigReader> specials,
                             reader.Object("special_tokens"));
    if (!specials) return reader.Error("special_tokens", "is missing");
    VITRINE_ASSIGN_OR_RETURN(const std::optional<JsonConfigReader> entry,
                             specials->Object(*name->AsString()));
    if (!entry) return specials->Error(Quote(*name->AsString()), "is missing");
    VITRINE_ASSIGN_OR_RETURN(const std::vector<int> ids,
                             entry->Ids("ids", static_cast<int>(tokens_.size()) - 1));
    side->insert(side->end(), ids.begin(), ids.end());
  }
  return absl::OkStatus();
}

absl::Status TokenizerJsonReader::ReadPostProcessor() {
  const std::string where = absl::StrCat(label_, ": post_processor");
  const JsonValue* processor = root_.Find("post_processor");
  if (processor == nullptr || processor->is_null()) return absl::OkStatus();
  std::vector<const JsonValue*> processors = {processor};
  if (const JsonValue* list = processor->Find("processors")) {
    if (list->AsArray() == nullptr) return Error("post_processor.processors", "is not an array");
    processors.clear();
    for (const JsonValue& item : *list->AsArray()) processors.push_back(&item);
  }
  bool has_template = false;
  for (const JsonValue* item : processors) {
    const JsonConfigReader reader(*item, where);
    VITRINE_ASSIGN_OR_RETURN(const std::string type, reader.String("type"));
    if (type == "ByteLevel") continue;  // Trims offsets, which ids do not depend on.
    if (type != "TemplateProcessing" || has_template) {
      return reader.Unsupported("type", absl::StrCat("is ", Quote(type), ", not supported"));
    }
    has_template = true;
    VITRINE_RETURN_IF_ERROR(ReadTemplate(*item, reader));
  }
  return absl::OkStatus();
}

// A begin or end token that another file names and this one lacks counts as not named.
void TokenizerJsonReader::SetSpecialIds() {
  const auto find = [&](std::string_view text) -> TokenId {
    if (text.empty()) return -1;
    const auto found = std::ranges::find(tokens_, text, &JsonToken::text);
    return found == tokens_.end() ? -1 : static_cast<TokenId>(found - tokens_.begin());
  };
  parts_.bos_id = find(special_.bos_text);
  if (parts_.bos_id < 0) parts_.bos_id = special_.bos_id;
  if (parts_.bos_id < 0 && !parts_.prefix_ids.empty()) parts_.bos_id = parts_.prefix_ids.front();
  parts_.eos_ids = special_.eos_ids;
  if (const TokenId eos = find(special_.eos_text); eos >= 0) parts_.eos_ids.push_back(eos);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> TokenizerJsonReader::Read() {
  if (root_.AsObject() == nullptr) return Error("the file", "is not an object");
  const JsonConfigReader root(root_, label_);
  VITRINE_ASSIGN_OR_RETURN(const std::optional<JsonConfigReader> model, root.Object("model"));
  if (!model) return Error("model", "is missing");
  const JsonValue& model_value = *root_.Find("model");
  VITRINE_ASSIGN_OR_RETURN(const std::string type, model->String("type", "BPE"));
  const bool is_unigram = type == "Unigram";
  if (type != "BPE" && !is_unigram) {
    return model->Unsupported("type", absl::StrCat("is ", Quote(type), ", not supported"));
  }
  VITRINE_ASSIGN_OR_RETURN(JsonTextRules rules, ReadJsonTextRules(root_, label_));
  VITRINE_ASSIGN_OR_RETURN(const JsonTokenTexts texts, JsonTokenTexts::Read(root_, label_));
  if (texts.is_byte_level() != rules.is_byte_level) {
    return absl::UnimplementedError(absl::StrCat(label_, ": ByteLevel as ",
                                                 rules.is_byte_level ? "pre_tokenizer" : "decoder",
                                                 " alone is not supported"));
  }
  VITRINE_RETURN_IF_ERROR(is_unigram ? ReadScoredVocabulary(model_value)
                                     : ReadVocabulary(model_value));
  VITRINE_RETURN_IF_ERROR(ReadAddedTokens());
  VITRINE_RETURN_IF_ERROR(FillVocabulary(texts));
  VITRINE_RETURN_IF_ERROR(is_unigram ? ReadUnigram(*model, rules.is_byte_level)
                                     : ReadBpe(*model, model_value, rules.is_byte_level));
  VITRINE_RETURN_IF_ERROR(ReadPostProcessor());
  parts_.normalizer = std::move(rules.normalizer);
  parts_.preparation = std::move(rules.preparation);
  parts_.pre_tokenizer = std::move(rules.pre_tokenizer);
  parts_.strips_first_space = texts.strips_first_space();
  SetSpecialIds();
  return PipelineTokenizer::Create(std::move(parts_));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizerJson(std::string_view text,
                                                              std::string_view label,
                                                              SpecialTokens special) {
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(label), ": ", text.size(),
                                                   " bytes, at most ", kMaxFileBytes, " may be"));
  }
  VITRINE_ASSIGN_OR_RETURN(const JsonValue root, ParseJson(text, label, kMaxValues));
  return TokenizerJsonReader(root, std::string(label), std::move(special)).Read();
}

}  // namespace vitrine
