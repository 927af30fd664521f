// Chunks of a trace back into whole arrays, or a refusal: what a picture shows must be what the
// server sent, all of it and once.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "vitrine/v1/attention.pb.h"

namespace vitrine::client {

// Elements of one array; a terminal or a notebook has no use for more.
inline constexpr size_t kMaxAttentionElements = size_t{1} << 28;

// A row: the token at `position` looked, which led to the token at position + 1. Rows of the prompt
// belong to choice 0.
struct AttentionRowId {
  uint32_t choice = 0;
  uint32_t position = 0;
  auto operator<=>(const AttentionRowId&) const = default;
};

struct AttentionHead {
  uint32_t layer = 0;
  uint32_t head = 0;
  auto operator<=>(const AttentionHead&) const = default;
};

// One kind of output, whole. Axes are [layer, head, query, last], the last one fastest.
struct AttentionArray {
  v1::AttentionOutputKind kind = v1::ATTENTION_OUTPUT_KIND_UNSPECIFIED;
  std::array<size_t, 4> dims = {};
  // Along the axes, or what was reduced to an axis of length 1. With pairs the head axis counts
  // `pairs` and the layer axis has length 1.
  std::vector<uint32_t> layers = {};
  std::vector<uint32_t> heads = {};
  std::vector<AttentionHead> pairs = {};
  std::vector<AttentionRowId> rows = {};  // Ascending. COLUMN_SUM and TILE: the rows summed up.
  // Along the last axis: key positions (DENSE, COLUMN_SUM), first keys of bins (TILE), or a count.
  std::vector<uint32_t> last = {};
  std::vector<float> values = {};       // TOP_K: the weights.
  std::vector<uint32_t> top_keys = {};  // TOP_K, as `values`.
  std::vector<float> tail_mass = {};    // TOP_K: [layer, head, query]; empty for scores.

  // Row-major index of (layer, head, query, 0).
  size_t RowBegin(size_t layer, size_t head, size_t query) const {
    return ((layer * dims[1] + head) * dims[2] + query) * dims[3];
  }
};

struct AttentionTrace {
  std::string request_id;
  std::vector<AttentionArray> arrays;  // By ascending kind.
  v1::AttentionProvenance provenance;  // Largest errors over all chunks.
  v1::TraceEnd end;

  // Null where there is none of this kind.
  const AttentionArray* Find(v1::AttentionOutputKind kind) const;
};

// One per trace; not thread-safe.
class AttentionAssembly {
 public:
  // `spec`: as sent; says which axes are reduced, and how many spans there are.
  explicit AttentionAssembly(const v1::AttentionSpec& spec);

  // DATA_LOSS names the broken promise: sequence numbers without gaps, one request, dims that agree
  // with the index lists and with the bytes, the element type, numbers that are numbers, nothing
  // after the end. RESOURCE_EXHAUSTED beyond kMaxAttentionElements.
  absl::Status Add(const v1::AttentionChunk& chunk);

  bool has_ended() const { return end_.has_value(); }

  // DATA_LOSS when the end has not come, its counts disagree with what came, or an element came
  // twice or never. Keys that a row cannot see may be missing: they are 0, -infinity for scores.
  absl::StatusOr<AttentionTrace> Finish() const;

 private:
  // A chunk with its axes as coordinates.
  struct Piece {
    std::array<std::vector<uint64_t>, 4> axes;
    std::vector<uint32_t> layers;
    std::vector<uint32_t> heads;
    std::vector<AttentionRowId> rows;
    std::vector<float> values;
    std::vector<uint32_t> top_keys;
    std::vector<float> tail_mass;
  };

  void AddProvenance(const v1::AttentionProvenance& provenance);
  absl::Status AddPiece(const v1::AttentionChunk& chunk);
  absl::Status CheckAxes(const v1::AttentionChunk& chunk, const v1::Tensor& tensor) const;
  absl::Status CheckLastAxis(const v1::AttentionChunk& chunk, uint32_t length) const;
  Piece MakePiece(const v1::AttentionChunk& chunk, const v1::Tensor& tensor) const;
  absl::Status AddTopK(const v1::AttentionChunk& chunk, Piece* piece) const;
  absl::StatusOr<AttentionArray> Join(v1::AttentionOutputKind kind,
                                      const std::vector<Piece>& pieces) const;
  absl::Status Fill(const std::vector<Piece>& pieces,
                    const std::array<std::vector<uint64_t>, 4>& axes, AttentionArray* array) const;
  // False when an element has come already.
  static bool Place(const Piece& piece, const std::array<std::vector<uint64_t>, 4>& axes,
                    AttentionArray* array, std::vector<bool>* has_come);

  const bool has_pairs_;
  const bool reduces_layers_;
  const bool reduces_heads_;
  const bool has_key_ranges_;
  const bool is_scores_;
  const size_t spans_;
  std::string request_id_;
  uint64_t next_sequence_number_ = 0;
  uint64_t bytes_ = 0;
  size_t elements_ = 0;
  std::set<AttentionRowId> rows_;  // Of kinds with a row per query.
  std::map<v1::AttentionOutputKind, std::vector<Piece>> pieces_;
  v1::AttentionProvenance provenance_;
  std::optional<v1::TraceEnd> end_;
};

// IEEE binary16.
float FloatOfHalf(uint16_t half);

}  // namespace vitrine::client
