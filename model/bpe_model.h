// Byte-pair encoding of pre-tokens, over bytes or over characters. Const and thread-safe after
// Create.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "model/bpe_merges.h"
#include "model/subword_model.h"
#include "model/unigram_model.h"

namespace vitrine {

// The tokens that ordinary text can become, by their text in the file.
using TokenIds = absl::flat_hash_map<std::string_view, TokenId>;

struct BpeMerge {
  std::string_view left;
  std::string_view right;
};

struct BpeOptions {
  // True: token texts are written in the byte alphabet and symbols are bytes (Radford et al.,
  // 2019). False: symbols are characters (Sennrich et al., 2016).
  bool is_byte_level = true;
  // A pre-token that is a token as a whole becomes it, whatever the merges say.
  bool whole_words = false;
  // Characters without a token of their own become the tokens <0x00> to <0xFF> of their bytes, if
  // there are tokens for all of these.
  bool byte_fallback = false;
  // What symbols become for which there is nothing else; -1: they are left out.
  TokenId unknown_id = -1;
  // Several unknown symbols in a row become one token.
  bool fuse_unknown = false;
};

class BpeModel final : public SubwordModel {
 public:
  // `merges` with the most important first; of equal ones the first counts. INVALID_ARGUMENT names
  // a merge that is not of two tokens that give a third.
  static absl::StatusOr<std::unique_ptr<BpeModel>> Create(const TokenIds& ids,
                                                          std::span<const BpeMerge> merges,
                                                          const BpeOptions& options);

  // Pairs merge when their text is one of `pieces`, those of the highest score first, as in
  // SentencePiece. Symbols are characters, and options.byte_fallback has no meaning: `byte_ids`
  // says what characters without a piece become. INVALID_ARGUMENT: a score is not finite.
  static absl::StatusOr<std::unique_ptr<BpeModel>> CreateFromScores(
      std::span<const ScoredPiece> pieces, const ByteIds& byte_ids, const BpeOptions& options);

  void Encode(std::string_view piece, uint32_t offset, Workspace& workspace,
              std::vector<PlacedToken>& tokens) const override;

 private:
  explicit BpeModel(const BpeOptions& options) : options_(options) { byte_ids_.fill(-1); }

  void AddSymbols(const TokenIds& ids);
  absl::Status AddMerges(const TokenIds& ids, std::span<const BpeMerge> merges);
  void AddWholeWords(const TokenIds& ids);
  void AddScoredMerges(const TokenIds& ids, std::span<const ScoredPiece> pieces);
  void FindMarkNeighbours(const TokenIds& ids);
  size_t ChunkEnd(std::string_view piece, size_t begin) const;
  void EncodeChunk(std::string_view chunk, uint32_t offset, Workspace& workspace,
                   std::vector<PlacedToken>& tokens) const;
  void AppendFallback(std::string_view character, uint32_t offset,
                      std::vector<PlacedToken>& symbols) const;
  void SplitIntoBytes(std::string_view piece, uint32_t offset,
                      std::vector<PlacedToken>& symbols) const;
  void SplitIntoCharacters(std::string_view piece, uint32_t offset,
                           std::vector<PlacedToken>& symbols) const;

  BpeOptions options_;
  // Of single bytes: symbols, or what characters fall back to; -1: the vocabulary has none.
  ByteIds byte_ids_ = {};
  absl::flat_hash_map<char32_t, TokenId> character_ids_;
  // Ids from here on are characters that only occur inside pieces.
  TokenId first_placeholder_ = INT32_MAX;
  std::vector<char32_t> placeholders_;
  // Text may be cut in front of U+2581 where no token has that and the character before it side by
  // side: these are the characters of which one has.
  bool is_cut_at_marks_ = false;
  absl::flat_hash_set<char32_t> mark_neighbours_;
  BpeMerges merges_;
  std::string words_;                                           // Of whole_words_, end to end.
  absl::flat_hash_map<std::string_view, TokenId> whole_words_;  // By their bytes, inside words_.
};

}  // namespace vitrine
