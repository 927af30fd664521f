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
// Sums in single precision that are further from 0 begin anew.
constexpr double kLargeSum = 100'000.0;

// A user-defined piece beats every way through its characters, and a longer one those inside it.
double SymbolScore(std::string_view text) {
  return static_cast<float>(0.1 * (static_cast<double>(text.size()) - 1.0));
}

// Takes the score at `begin` off all nodes from there to `frontier`, between which it matters.
void BeginAnew(std::vector<LatticeNode>& lattice, size_t begin, size_t frontier) {
  const auto offset = static_cast<float>(lattice[begin].score);
  for (size_t i = begin; i <= frontier; ++i) {
    if (i > begin && !lattice[i].is_reached) continue;
    lattice[i].score = static_cast<float>(lattice[i].score) - offset;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<UnigramModel>> UnigramModel::Create(
    std::span<const ScoredPiece> pieces, const ByteIds& byte_ids, const UnigramOptions& options) {
  std::unique_ptr<UnigramModel> model(new UnigramModel(byte_ids, options));
  PrefixTrie::Entries entries;
  entries.reserve(pieces.size());
  double lowest = std::numeric_limits<double>::max();
  bool has_score = false;
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
    if (!piece.is_user_defined) {
      lowest = std::min(lowest, piece.score);
      has_score = true;
    }
    if (piece.text.empty()) continue;
    entries.emplace_back(piece.text, static_cast<int32_t>(model->ids_.size()));
    model->ids_.push_back(piece.id);
    model->scores_.push_back(piece.is_user_defined ? SymbolScore(piece.text) : piece.score);
  }
  model->unknown_score_ = (has_score ? lowest : 0.0) - kUnknownPenalty;
  model->trie_ = PrefixTrie(std::move(entries));
  return model;
}

// Fills workspace.lattice: for every byte at which a piece can end, the best piece that does.
template <class Score>
void UnigramModel::FindBestPath(std::string_view text, Workspace& workspace) const {
  std::vector<LatticeNode>& lattice = workspace.lattice;
  lattice.assign(text.size() + 1, LatticeNode());
  size_t frontier = 0;  // The last end that is reached.
  const auto offer = [&](size_t begin, size_t end, double score, int32_t piece) {
    const Score total = static_cast<Score>(score) + static_cast<Score>(lattice[begin].score);
    frontier = std::max(frontier, end);
    LatticeNode& node = lattice[end];
    if (node.is_reached && total <= static_cast<Score>(node.score)) return;
    node = {
        .score = total, .begin = static_cast<uint32_t>(begin), .piece = piece, .is_reached = true};
  };
  for (size_t begin = 0; begin < text.size();) {
    if (options_.is_single_precision && std::abs(lattice[begin].score) > kLargeSum) {
      BeginAnew(lattice, begin, frontier);
    }
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
