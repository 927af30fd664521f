#include "model/bpe_model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
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
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

bool IsContinuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// The last character of `text`, which is not empty.
char32_t LastCharacter(std::string_view text) {
  size_t i = text.size() - 1;
  while (i > 0 && IsContinuation(text[i])) --i;
  return DecodeUtf8(text, i).code_point;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BpeModel>> BpeModel::Create(const TokenIds& ids,
                                                           std::span<const BpeMerge> merges,
                                                           const BpeOptions& options) {
  std::unique_ptr<BpeModel> model(new BpeModel(options));
  model->AddSymbols(ids);
  VITRINE_RETURN_IF_ERROR(model->AddMerges(ids, merges));
  if (options.whole_words) model->AddWholeWords(ids);
  if (!options.is_byte_level) model->FindMarkNeighbours(ids);
  return model;
}

absl::StatusOr<std::unique_ptr<BpeModel>> BpeModel::CreateFromScores(
    std::span<const ScoredPiece> pieces, const ByteIds& byte_ids, const BpeOptions& options) {
  std::unique_ptr<BpeModel> model(new BpeModel(options));
  model->options_.is_byte_level = false;
  model->options_.byte_fallback = false;
  TokenIds ids;
  ids.reserve(pieces.size());
  for (const ScoredPiece& piece : pieces) {
    if (!std::isfinite(piece.score)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the score of token ", piece.id, " is not finite"));
    }
    ids.try_emplace(piece.text, piece.id);
  }
  model->AddSymbols(ids);
  model->byte_ids_ = byte_ids;
  model->AddScoredMerges(ids, pieces);
  model->FindMarkNeighbours(ids);
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

void BpeModel::AddScoredMerges(const TokenIds& ids, std::span<const ScoredPiece> pieces) {
  std::vector<double> scores;
  TokenId highest = std::max(options_.unknown_id, *std::ranges::max_element(byte_ids_));
  for (const ScoredPiece& piece : pieces) {
    scores.push_back(piece.score);
    highest = std::max(highest, piece.id);
  }
  std::ranges::sort(scores, std::greater<>());
  scores.erase(std::ranges::unique(scores).begin(), scores.end());
  first_placeholder_ = highest + 1;
  const auto find = [&](std::string_view text) -> TokenId {
    if (const auto found = ids.find(text); found != ids.end()) return found->second;
    if (text.empty() || DecodeUtf8(text, 0).length != text.size()) return -1;
    const char32_t character = DecodeUtf8(text, 0).code_point;
    const auto next = static_cast<TokenId>(first_placeholder_ + placeholders_.size());
    const auto [entry, is_new] = character_ids_.try_emplace(character, next);
    if (is_new) placeholders_.push_back(character);
    return entry->second;
  };
  for (const ScoredPiece& piece : pieces) {
    const auto rank = std::ranges::lower_bound(scores, piece.score, std::greater<>());
    for (size_t i = 1; i < piece.text.size(); ++i) {
      if (IsContinuation(piece.text[i])) continue;
      const TokenId left = find(piece.text.substr(0, i));
      const TokenId right = left < 0 ? -1 : find(piece.text.substr(i));
      if (right < 0) continue;
      merges_.Add(left, right, static_cast<int32_t>(rank - scores.begin()), piece.id);
    }
  }
}

void BpeModel::FindMarkNeighbours(const TokenIds& ids) {
  is_cut_at_marks_ = ids.contains(kSpaceMark);
  for (const auto& [text, id] : ids) {
    for (size_t i = text.find(kSpaceMark); i != std::string_view::npos;
         i = text.find(kSpaceMark, i + kSpaceMark.size())) {
      if (i > 0) mark_neighbours_.insert(LastCharacter(text.substr(0, i)));
    }
  }
}

// The end of the part of `piece` from `begin` on that can be encoded by itself.
size_t BpeModel::ChunkEnd(std::string_view piece, size_t begin) const {
  if (!is_cut_at_marks_) return piece.size();
  for (size_t i = piece.find(kSpaceMark, begin + 1); i != std::string_view::npos;
       i = piece.find(kSpaceMark, i + kSpaceMark.size())) {
    if (!mark_neighbours_.contains(LastCharacter(piece.substr(0, i)))) return i;
  }
  return piece.size();
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

// Appends the byte tokens of a character that has no token, or the unknown token.
void BpeModel::AppendFallback(std::string_view character, uint32_t offset,
                              std::vector<PlacedToken>& symbols) const {
  const bool has_all = std::ranges::all_of(
      character, [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)] >= 0; });
  if (has_all) {
    for (const char byte : character) {
      symbols.push_back({byte_ids_[static_cast<uint8_t>(byte)], offset++});
    }
    return;
  }
  const TokenId unknown = options_.unknown_id;
  const bool is_fused = options_.fuse_unknown && !symbols.empty() && symbols.back().id == unknown;
  if (unknown >= 0 && !is_fused) symbols.push_back({unknown, offset});
}

void BpeModel::SplitIntoCharacters(std::string_view piece, uint32_t offset,
                                   std::vector<PlacedToken>& symbols) const {
  for (size_t i = 0; i < piece.size();) {
    const Utf8Character next = DecodeUtf8(piece, i);
    const auto place = static_cast<uint32_t>(offset + i);
    if (const auto found = character_ids_.find(next.code_point); found != character_ids_.end()) {
      symbols.push_back({found->second, place});
    } else {
      AppendFallback(piece.substr(i, next.length), place, symbols);
    }
    i += next.length;
  }
}

void BpeModel::EncodeChunk(std::string_view chunk, uint32_t offset, Workspace& workspace,
                           std::vector<PlacedToken>& tokens) const {
  std::vector<PlacedToken>& symbols = workspace.symbols;
  symbols.clear();
  if (options_.is_byte_level) {
    SplitIntoBytes(chunk, offset, symbols);
  } else {
    SplitIntoCharacters(chunk, offset, symbols);
  }
  merges_.Apply(symbols, workspace.merging);
  for (const PlacedToken& symbol : symbols) {
    if (symbol.id < first_placeholder_) {
      // Next to a placeholder an unknown character was not seen to be one of several.
      const bool is_fused = !placeholders_.empty() && options_.fuse_unknown &&
                            symbol.id == options_.unknown_id && !tokens.empty() &&
                            tokens.back().id == symbol.id;
      if (!is_fused) tokens.push_back(symbol);
      continue;
    }
    std::string character;
    AppendUtf8(placeholders_[static_cast<size_t>(symbol.id - first_placeholder_)], character);
    AppendFallback(character, symbol.offset, tokens);
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
  for (size_t begin = 0; begin < piece.size();) {
    const size_t end = options_.is_byte_level ? piece.size() : ChunkEnd(piece, begin);
    EncodeChunk(piece.substr(begin, end - begin), static_cast<uint32_t>(offset + begin), workspace,
                tokens);
    begin = end;
  }
}

}  // namespace vitrine
