#include "model/bpe_tokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/byte_alphabet.h"
#include "model/detokenizer.h"
#include "model/quote.h"
#include "model/status.h"

namespace vitrine {
namespace {

// The byte that the text of a byte token, <0x41>, names.
std::optional<uint8_t> ParseByteToken(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
  int value = 0;
  for (const char digit : text.substr(3, 2)) {
    const bool is_decimal = digit >= '0' && digit <= '9';
    const bool is_letter = digit >= 'A' && digit <= 'F';
    if (!is_decimal && !is_letter) return std::nullopt;
    value = value * 16 + (is_decimal ? digit - '0' : digit - 'A' + 10);
  }
  return static_cast<uint8_t>(value);
}

// The bytes that a token of this text and type stands for; nullopt when it is a malformed byte
// token.
std::optional<std::string> BytesOfToken(std::string_view text, TokenType type) {
  if (type == TokenType::kByte) {
    const std::optional<uint8_t> byte = ParseByteToken(text);
    if (!byte) return std::nullopt;
    return std::string(1, static_cast<char>(*byte));
  }
  if (type == TokenType::kNormal || type == TokenType::kUnused) {
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

}  // namespace

// Memory of one call of Encode.
struct BpeTokenizer::Work {
  Encoding encoding;
  std::vector<PlacedToken> symbols;
  BpeMerges::Workspace merging;

  void Append(TokenId id, size_t offset) {
    encoding.ids.push_back(id);
    encoding.byte_offsets.push_back(static_cast<uint32_t>(offset));
  }
};

BpeTokenizer::BpeTokenizer(const PreTokenizer& rule)
    : rule_(rule), kind_("bpe/" + std::string(rule.name)) {
  byte_ids_.fill(-1);
}

absl::StatusOr<std::unique_ptr<BpeTokenizer>> BpeTokenizer::Create(
    const BpeDefinition& definition) {
  const PreTokenizer* rule = FindPreTokenizer(definition.pre_tokenizer);
  if (rule == nullptr) {
    return absl::UnimplementedError(
        absl::StrCat("pre-tokenizer ", Quote(definition.pre_tokenizer), " is not supported"));
  }
  VITRINE_RETURN_IF_ERROR(CheckTables(definition));
  auto tokenizer = std::unique_ptr<BpeTokenizer>(new BpeTokenizer(*rule));
  TokenIds ids;
  VITRINE_RETURN_IF_ERROR(tokenizer->AddTokens(definition, ids));
  VITRINE_RETURN_IF_ERROR(tokenizer->AddMerges(definition, ids));
  VITRINE_RETURN_IF_ERROR(tokenizer->SetSpecialIds(definition));
  return tokenizer;
}

absl::Status BpeTokenizer::AddTokens(const BpeDefinition& definition, TokenIds& ids) {
  TokenMatcher::TokenTexts user_defined;
  TokenMatcher::TokenTexts user_defined_and_control;
  ids.reserve(definition.tokens.size());
  for (size_t i = 0; i < definition.tokens.size(); ++i) {
    const std::string_view text = definition.tokens[i];
    const TokenType type = definition.types[i];
    const auto id = static_cast<TokenId>(i);
    if (FindInvalidUtf8(text) != std::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrCat("token ", i, " is not UTF-8: ", Quote(text)));
    }
    const std::optional<std::string> bytes = BytesOfToken(text, type);
    if (!bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "token ", i, " is a byte token and not written <0x00> to <0xFF>: ", Quote(text)));
    }
    vocabulary_.Add(*bytes, type);
    const bool is_control = vocabulary_.IsControl(id);
    if (!is_control) ids.try_emplace(text, id);
    if (text.empty()) continue;
    if (is_control || type == TokenType::kUserDefined) {
      user_defined_and_control.emplace_back(text, id);
    }
    if (type == TokenType::kUserDefined) user_defined.emplace_back(text, id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = ids.find(EncodeByteAlphabet(static_cast<uint8_t>(byte)));
    if (found != ids.end()) byte_ids_[byte] = found->second;
  }
  user_defined_ = TokenMatcher(user_defined);
  user_defined_and_control_ = TokenMatcher(user_defined_and_control);
  return absl::OkStatus();
}

absl::Status BpeTokenizer::AddMerges(const BpeDefinition& definition, const TokenIds& ids) {
  merges_.Reserve(definition.merges.size());
  std::string merged_text;
  for (size_t i = 0; i < definition.merges.size(); ++i) {
    const std::string_view merge = definition.merges[i];
    const size_t space = merge.find(' ');
    const bool is_pair = space != std::string_view::npos && space > 0 && space + 1 < merge.size() &&
                         merge.find(' ', space + 1) == std::string_view::npos;
    if (!is_pair) {
      return absl::InvalidArgumentError(
          absl::StrCat("merge ", i, " is not two texts with one space between: ", Quote(merge)));
    }
    merged_text.assign(merge.substr(0, space)).append(merge.substr(space + 1));
    const auto left = ids.find(merge.substr(0, space));
    const auto right = ids.find(merge.substr(space + 1));
    const auto merged = ids.find(merged_text);
    if (left == ids.end() || right == ids.end() || merged == ids.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "merge ", i, " is not of two ordinary tokens that give a third: ", Quote(merge)));
    }
    merges_.Add(left->second, right->second, static_cast<int32_t>(i), merged->second);
  }
  if (rule_.whole_words) {
    for (const auto& [text, id] : ids) whole_words_.try_emplace(vocabulary_.Bytes(id), id);
  }
  return absl::OkStatus();
}

absl::Status BpeTokenizer::SetSpecialIds(const BpeDefinition& definition) {
  const auto is_token = [&](TokenId id) { return id >= 0 && id < vocabulary_.size(); };
  const bool all_valid =
      (definition.bos_id == -1 || is_token(definition.bos_id)) &&
      std::all_of(definition.eos_ids.begin(), definition.eos_ids.end(), is_token);
  if (!all_valid) {
    return absl::InvalidArgumentError("a begin or end token is outside the vocabulary");
  }
  if (definition.add_bos && definition.bos_id == -1) {
    return absl::InvalidArgumentError("a begin token is to be added and none is named");
  }
  bos_id_ = definition.bos_id;
  add_bos_ = definition.add_bos;
  eos_ids_ = definition.eos_ids;
  return absl::OkStatus();
}

// Encodes text[begin, end), which holds no whole tokens to be matched.
void BpeTokenizer::EncodeOrdinary(std::string_view text, size_t begin, size_t end,
                                  Work& work) const {
  PreTokenIterator pieces(rule_, text.substr(begin, end - begin));
  size_t offset = begin;
  while (const std::optional<std::string_view> piece = pieces.Next()) {
    const auto whole = rule_.whole_words ? whole_words_.find(*piece) : whole_words_.end();
    if (whole != whole_words_.end()) {
      work.Append(whole->second, offset);
      offset += piece->size();
      continue;
    }
    work.symbols.clear();
    for (const char byte : *piece) {
      const TokenId id = byte_ids_[static_cast<uint8_t>(byte)];
      if (id >= 0) work.symbols.push_back({id, static_cast<uint32_t>(offset)});
      ++offset;
    }
    merges_.Apply(work.symbols, work.merging);
    for (const PlacedToken& token : work.symbols) work.Append(token.id, token.offset);
  }
}

absl::StatusOr<Encoding> BpeTokenizer::Encode(std::string_view text,
                                              const EncodeOptions& options) const {
  if (const size_t bad = FindInvalidUtf8(text); bad != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("the text is not UTF-8 at byte ", bad));
  }
  if (text.size() > UINT32_MAX) {
    return absl::InvalidArgumentError("the text is longer than 4 GiB");
  }
  const TokenMatcher& matcher = options.parse_special ? user_defined_and_control_ : user_defined_;
  const std::vector<TokenMatch> matches = matcher.Find(text);

  Work work;
  const bool begins_with_bos =
      !matches.empty() && matches.front().begin == 0 && matches.front().id == bos_id_;
  if (options.add_bos && add_bos_ && !begins_with_bos) work.Append(bos_id_, 0);
  size_t begin = 0;
  for (const TokenMatch& match : matches) {
    EncodeOrdinary(text, begin, match.begin, work);
    work.Append(match.id, match.begin);
    begin = match.end;
  }
  EncodeOrdinary(text, begin, text.size(), work);
  return std::move(work.encoding);
}

}  // namespace vitrine
