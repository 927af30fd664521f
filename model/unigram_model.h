// A unigram language model over subwords: the segmentation of greatest likelihood (Kudo, 2018).
// Const and thread-safe after Create.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/prefix_trie.h"
#include "model/subword_model.h"

namespace vitrine {

// A token that text can become, and its log-likelihood or, for pairs, its priority.
struct ScoredPiece {
  std::string_view text;
  TokenId id = 0;
  double score = 0.0;
  bool is_user_defined = false;  // For a unigram model: so likely that the score does not count.
};

// Tokens of single bytes; -1: there is none.
using ByteIds = std::array<TokenId, 256>;

struct UnigramOptions {
  // What characters become that no piece covers, unless all bytes of them have tokens; -1: they are
  // left out.
  TokenId unknown_id = -1;
  bool fuse_unknown = true;  // Several in a row become one token.
  // Sums are kept in single precision, and begin anew when they get large, as in the SentencePiece
  // library (0.2.3): it decides ties.
  bool is_single_precision = false;
};

class UnigramModel final : public SubwordModel {
 public:
  // INVALID_ARGUMENT: a score is not finite, or a piece is longer than 512 bytes, by which the time
  // for each byte of a text is bounded.
  static absl::StatusOr<std::unique_ptr<UnigramModel>> Create(std::span<const ScoredPiece> pieces,
                                                              const ByteIds& byte_ids,
                                                              const UnigramOptions& options);

  void Encode(std::string_view piece, uint32_t offset, Workspace& workspace,
              std::vector<PlacedToken>& tokens) const override;

 private:
  UnigramModel(const ByteIds& byte_ids, const UnigramOptions& options)
      : byte_ids_(byte_ids), options_(options) {}

  template <class Score>
  void FindBestPath(std::string_view text, Workspace& workspace) const;
  void AppendUnknown(std::string_view bytes, uint32_t offset,
                     std::vector<PlacedToken>& tokens) const;

  PrefixTrie trie_;  // Numbers are indices into the two vectors.
  std::vector<TokenId> ids_;
  std::vector<double> scores_;
  double unknown_score_ = 0.0;
  ByteIds byte_ids_;
  UnigramOptions options_;
};

}  // namespace vitrine
