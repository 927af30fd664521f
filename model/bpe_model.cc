#include "model/bpe_model.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/byte_alphabet.h"
#include "model/byte_token.h"
#include "model/categorized_text.h"
#include "model/quote.h"
#include "model/status.h"

namespace vitrine {

absl::StatusOr<std::unique_ptr<BpeModel>> BpeModel::Create(const TokenIds& ids,
                                                           std::span<const BpeMerge> merges,
                                                           const BpeOptions& options) {
  std::unique_ptr<BpeModel> model(new BpeModel(options));
  model->AddSymbols(ids);
  VITRINE_RETURN_IF_ERROR(model->AddMerges(ids, merges));
  if (options.whole_words) model->AddWholeWords(ids);
  return model;
}

void BpeModel::AddSymbols(const TokenIds& ids) {
  if (options_.is_byte_level || options_.byte_fallback) {
    for (int i = 0; i < 256; ++i) {
      const auto byte = static_cast<uint8_t>(i);
      const auto found =
          ids.find(options_.is_byte_level ? EncodeByteAlphabet(byte) : ByteTokenText(byte));
      if (found != ids.end()) byte_ids_[byte] = found->second;
    }
  }
  if (options_.is_byte_level) return;
  for (const auto& [text, id] : ids) {
    if (text.empty() || text.size() > 4) continue;
    const Utf8Character first = DecodeUtf8(text, 0);
    if (first.length == text.size()) character_ids_.emplace(first.code_point, id);
  }
}

absl::Status BpeModel::AddMerges(const TokenIds& ids, std::span<const BpeMerge> merges) {
  merges_.Reserve(merges.size());
  std::string text;
  for (size_t i = 0; i < merges.size(); ++i) {
    text.assign(merges[i].left).append(merges[i].right);
    const auto left = ids.find(merges[i].left);
    const auto right = ids.find(merges[i].right);
    const auto merged = ids.find(text);
    if (left == ids.end() || right == ids.end() || merged == ids.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "merge ", i, " is not of two ordinary tokens that give a third: ", Quote(merges[i].left),
          " and ", Quote(merges[i].right)));
    }
    merges_.Add(left->second, right->second, static_cast<int32_t>(i), merged->second);
  }
  return absl::OkStatus();
}

void BpeModel::AddWholeWords(const TokenIds& ids) {
  size_t size = 0;
  for (const auto& [text, id] : ids) size += text.size();
  words_.reserve(size);  // The map points into it.
  whole_words_.reserve(ids.size());
  for (const auto& [text, id] : ids) {
    const size_t begin = words_.size();
    const auto bytes = options_.is_byte_level ? DecodeByteAlphabet(text) : std::nullopt;
    words_ += bytes ? std::string_view(*bytes) : text;
    whole_words_.try_emplace(std::string_view(words_).substr(begin), id);
  }
}

void BpeModel::SplitIntoBytes(std::string_view piece, uint32_t offset,
                              std::vector<PlacedToken>& symbols) const {
  bool was_unknown = false;
  for (const char byte : piece) {
    const TokenId id = byte_ids_[static_cast<uint8_t>(byte)];
    const bool is_unknown = id < 0;
    if (!is_unknown) {
      symbols.push_back({id, offset});
    } else if (options_.unknown_id >= 0 && !(was_unknown && options_.fuse_unknown)) {
      symbols.push_back({options_.unknown_id, offset});
    }
    was_unknown = is_unknown;
    ++offset;
  }
}

void BpeModel::SplitIntoCharacters(std::string_view piece, uint32_t offset,
                                   std::vector<PlacedToken>& symbols) const {
  bool was_unknown = false;
  for (size_t i = 0; i < piece.size();) {
    const Utf8Character next = DecodeUtf8(piece, i);
    const auto place = static_cast<uint32_t>(offset + i);
    const std::string_view bytes = piece.substr(i, next.length);
    i += next.length;
    if (const auto found = character_ids_.find(next.code_point); found != character_ids_.end()) {
      symbols.push_back({found->second, place});
      was_unknown = false;
      continue;
    }
    const size_t known = symbols.size();
    for (const char byte : bytes) {
      const TokenId id = byte_ids_[static_cast<uint8_t>(byte)];
      if (id >= 0) symbols.push_back({id, static_cast<uint32_t>(place + (&byte - bytes.data()))});
    }
    const bool has_all = symbols.size() == known + bytes.size();
    if (!has_all) {
      symbols.resize(known);
      const bool is_fused = was_unknown && options_.fuse_unknown;
      if (options_.unknown_id >= 0 && !is_fused) symbols.push_back({options_.unknown_id, place});
    }
    was_unknown = !has_all;
  }
}

void BpeModel::Encode(std::string_view piece, uint32_t offset, Workspace& workspace,
                      std::vector<PlacedToken>& tokens) const {
  if (options_.whole_words) {
    if (const auto found = whole_words_.find(piece); found != whole_words_.end()) {
      tokens.push_back({found->second, offset});
      return;
    }
  }
  std::vector<PlacedToken>& symbols = workspace.symbols;
  symbols.clear();
  if (options_.is_byte_level) {
    SplitIntoBytes(piece, offset, symbols);
  } else {
    SplitIntoCharacters(piece, offset, symbols);
  }
  merges_.Apply(symbols, workspace.merging);
  tokens.insert(tokens.end(), symbols.begin(), symbols.end());
}

}  // namespace vitrine
