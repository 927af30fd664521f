#include "model/unigram_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/categorized_text.h"

namespace vitrine {
namespace {

// How much less likely an unknown character is than the least likely piece.
constexpr double kUnknownPenalty = 10.0;
constexpr size_t kMaxPieceBytes = 512;
constexpr int32_t kUnknownPiece = -1;

}  // namespace

absl::StatusOr<std::unique_ptr<UnigramModel>> UnigramModel::Create(
    std::span<const ScoredPiece> pieces, const ByteIds& byte_ids, const UnigramOptions& options) {
  std::unique_ptr<UnigramModel> model(new UnigramModel(byte_ids, options));
  PrefixTrie::Entries entries;
  entries.reserve(pieces.size());
  double lowest = std::numeric_limits<double>::max();
  for (const ScoredPiece& piece : pieces) {
    if (!std::isfinite(piece.score)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the score of token ", piece.id, " is not finite"));
    }
    if (piece.text.size() > kMaxPieceBytes) {
      return absl::InvalidArgumentError(absl::StrCat("token ", piece.id, " has ", piece.text.size(),
                                                     " bytes, at most ", kMaxPieceBytes,
                                                     " may be"));
    }
    lowest = std::min(lowest, piece.score);
    if (piece.text.empty()) continue;
    entries.emplace_back(piece.text, static_cast<int32_t>(model->ids_.size()));
    model->ids_.push_back(piece.id);
    model->scores_.push_back(piece.score);
  }
  model->unknown_score_ = (pieces.empty() ? 0.0 : lowest) - kUnknownPenalty;
  model->trie_ = PrefixTrie(std::move(entries));
  return model;
}

// Fills workspace.lattice: for every byte at which a piece can end, the best piece that does.
template <class Score>
void UnigramModel::FindBestPath(std::string_view text, Workspace& workspace) const {
  std::vector<LatticeNode>& lattice = workspace.lattice;
  lattice.assign(text.size() + 1, LatticeNode());
  const auto offer = [&](size_t begin, size_t end, double score, int32_t piece) {
    const double total = static_cast<Score>(score) + static_cast<Score>(lattice[begin].score);
    LatticeNode& node = lattice[end];
    if (node.is_reached && static_cast<Score>(total) <= static_cast<Score>(node.score)) return;
    node = {.score = static_cast<Score>(total),
            .begin = static_cast<uint32_t>(begin),
            .piece = piece,
            .is_reached = true};
  };
  for (size_t begin = 0; begin < text.size();) {
    const size_t character = DecodeUtf8(text, begin).length;
    bool covers_character = false;
    trie_.ForEachPrefix(text.substr(begin), [&](size_t length, int32_t piece) {
      offer(begin, begin + length, scores_[static_cast<size_t>(piece)], piece);
      covers_character = covers_character || length == character;
    });
    if (!covers_character) offer(begin, begin + character, unknown_score_, kUnknownPiece);
    begin += character;
  }
}

// Appends what unknown characters become.
void UnigramModel::AppendUnknown(std::string_view bytes, uint32_t offset,
                                 std::vector<PlacedToken>& tokens) const {
  const bool has_all = std::ranges::all_of(
      bytes, [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)] >= 0; });
  if (!has_all) {
    if (options_.unknown_id >= 0) tokens.push_back({options_.unknown_id, offset});
    return;
  }
  for (const char byte : bytes) tokens.push_back({byte_ids_[static_cast<uint8_t>(byte)], offset++});
}

void UnigramModel::Encode(std::string_view piece, uint32_t offset, Workspace& workspace,
                          std::vector<PlacedToken>& tokens) const {
  if (options_.is_single_precision) {
    FindBestPath<float>(piece, workspace);
  } else {
    FindBestPath<double>(piece, workspace);
  }
  const std::vector<LatticeNode>& lattice = workspace.lattice;
  std::vector<uint32_t>& ends = workspace.ends;
  ends.clear();
  for (size_t end = piece.size(); end > 0; end = lattice[end].begin) {
    ends.push_back(static_cast<uint32_t>(end));
  }
  for (size_t i = ends.size(); i-- > 0;) {
    const uint32_t begin = lattice[ends[i]].begin;
    if (lattice[ends[i]].piece != kUnknownPiece) {
      tokens.push_back({ids_[static_cast<size_t>(lattice[ends[i]].piece)], offset + begin});
      continue;
    }
    while (options_.fuse_unknown && i > 0 && lattice[ends[i - 1]].piece == kUnknownPiece) --i;
    AppendUnknown(piece.substr(begin, ends[i] - begin), offset + begin, tokens);
  }
}

}  // namespace vitrine
