#include "client/attention_assembly.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "vitrine/v1/attention.pb.h"

namespace vitrine::client {
namespace {

constexpr uint32_t kStatistics = 8;
constexpr uint32_t kNoKey = 0xFFFFFFFFu;

absl::Status Broken(std::string_view what) {
  return absl::DataLossError(absl::StrCat("attention: ", std::string(what)));
}

bool IsReduced(v1::AttentionReduce reduce) {
  return reduce == v1::ATTENTION_REDUCE_MEAN || reduce == v1::ATTENTION_REDUCE_MAX;
}

bool HasRowPerQuery(v1::AttentionOutputKind kind) {
  return kind != v1::ATTENTION_OUTPUT_KIND_COLUMN_SUM && kind != v1::ATTENTION_OUTPUT_KIND_TILE;
}

size_t ElementBytes(v1::ElementType dtype) { return dtype == v1::ELEMENT_TYPE_F16 ? 2 : 4; }

// Four dims, none of them 0, and as many bytes as they say.
absl::Status CheckTensor(const v1::Tensor& tensor, size_t rank) {
  if (static_cast<size_t>(tensor.dims_size()) != rank) {
    return Broken(absl::StrCat("a tensor has ", tensor.dims_size(), " axes instead of ", rank));
  }
  uint64_t elements = 1;
  for (const uint32_t dim : tensor.dims()) {
    elements *= dim;
    if (elements == 0 || elements > kMaxAttentionElements) {
      return Broken("a tensor's dims are 0 or beyond any chunk");
    }
  }
  const uint64_t bytes = elements * ElementBytes(tensor.dtype());
  if (tensor.data().size() != bytes) {
    return Broken(
        absl::StrCat("a tensor holds ", tensor.data().size(), " bytes, its dims say ", bytes));
  }
  return absl::OkStatus();
}

uint32_t LittleEndian(const std::string& data, size_t begin, size_t bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < bytes; ++i) {
    value |= static_cast<uint32_t>(static_cast<unsigned char>(data[begin + i])) << (8 * i);
  }
  return value;
}

absl::Status DecodeFloats(const v1::Tensor& tensor, std::vector<float>* values) {
  const size_t step = ElementBytes(tensor.dtype());
  values->reserve(tensor.data().size() / step);
  for (size_t i = 0; i < tensor.data().size(); i += step) {
    const uint32_t bits = LittleEndian(tensor.data(), i, step);
    const float value =
        step == 2 ? FloatOfHalf(static_cast<uint16_t>(bits)) : std::bit_cast<float>(bits);
    if (std::isnan(value)) return Broken("a tensor holds something that is no number");
    values->push_back(value);
  }
  return absl::OkStatus();
}

// Sorted, each once.
std::vector<uint64_t> Union(std::vector<uint64_t> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

uint64_t Joined(uint32_t high, uint32_t low) { return uint64_t{high} << 32 | low; }

size_t IndexOf(const std::vector<uint64_t>& sorted, uint64_t value) {
  return static_cast<size_t>(
      std::distance(sorted.begin(), std::lower_bound(sorted.begin(), sorted.end(), value)));
}

}  // namespace

float FloatOfHalf(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1Fu;
  const uint32_t fraction = half & 0x3FFu;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign == 0 ? magnitude : -magnitude;
  }
  const uint32_t wide_exponent = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide_exponent << 23 | fraction << 13);
}

const AttentionArray* AttentionTrace::Find(v1::AttentionOutputKind kind) const {
  for (const AttentionArray& array : arrays) {
    if (array.kind == kind) return &array;
  }
  return nullptr;
}

AttentionAssembly::AttentionAssembly(const v1::AttentionSpec& spec)
    : has_pairs_(spec.has_pairs()),
      reduces_layers_(IsReduced(spec.reduce_layers())),
      reduces_heads_(IsReduced(spec.reduce_heads())),
      has_key_ranges_(!spec.key_ranges().empty()),
      is_scores_(spec.stage() == v1::ATTENTION_STAGE_SCORES),
      spans_(static_cast<size_t>(spec.spans_size())) {}

absl::Status AttentionAssembly::Add(const v1::AttentionChunk& chunk) {
  if (end_) return Broken("a chunk comes after the end of the trace");
  if (chunk.sequence_number() != next_sequence_number_) {
    return Broken(absl::StrCat("chunk ", next_sequence_number_, " is missing; got chunk ",
                               chunk.sequence_number()));
  }
  if (next_sequence_number_++ == 0) request_id_ = chunk.request_id();
  if (chunk.request_id() != request_id_) return Broken("a chunk belongs to another request");
  AddProvenance(chunk.provenance());
  if (chunk.has_trace_end()) {
    end_ = chunk.trace_end();
    return absl::OkStatus();
  }
  return AddPiece(chunk);
}

void AttentionAssembly::AddProvenance(const v1::AttentionProvenance& provenance) {
  const float row_sum_error =
      std::max(provenance_.max_row_sum_error(), provenance.max_row_sum_error());
  const float lse_delta = std::max(provenance_.max_lse_delta(), provenance.max_lse_delta());
  if (provenance.method() != v1::ATTENTION_METHOD_UNSPECIFIED) provenance_ = provenance;
  provenance_.set_max_row_sum_error(row_sum_error);
  provenance_.set_max_lse_delta(lse_delta);
}

absl::Status AttentionAssembly::AddPiece(const v1::AttentionChunk& chunk) {
  const bool is_top_k = chunk.output() == v1::ATTENTION_OUTPUT_KIND_TOP_K;
  if (chunk.output() == v1::ATTENTION_OUTPUT_KIND_UNSPECIFIED ||
      !v1::AttentionOutputKind_IsValid(chunk.output()) || chunk.has_top_k() != is_top_k ||
      chunk.has_values() == is_top_k) {
    return Broken("a chunk's payload is not that of its kind");
  }
  const v1::Tensor& tensor = is_top_k ? chunk.top_k().weights() : chunk.values();
  const bool may_be_half = chunk.output() == v1::ATTENTION_OUTPUT_KIND_DENSE;
  if (tensor.dtype() != v1::ELEMENT_TYPE_F32 &&
      !(may_be_half && tensor.dtype() == v1::ELEMENT_TYPE_F16)) {
    return Broken("a tensor has an element type that its kind does not take");
  }
  absl::Status status = CheckTensor(tensor, 4);
  if (status.ok()) status = CheckAxes(chunk, tensor);
  if (!status.ok()) return status;

  elements_ += tensor.data().size() / ElementBytes(tensor.dtype());
  if (elements_ > kMaxAttentionElements) {
    return absl::ResourceExhaustedError(
        absl::StrCat("attention: more than ", kMaxAttentionElements,
                     " numbers; ask for fewer layers, heads or rows"));
  }
  Piece piece = MakePiece(chunk, tensor);
  status = DecodeFloats(tensor, &piece.values);
  if (status.ok() && is_top_k) status = AddTopK(chunk, &piece);
  if (!status.ok()) return status;
  bytes_ += tensor.data().size();
  if (is_top_k) {
    bytes_ += chunk.top_k().keys().data().size() + chunk.top_k().tail_mass().data().size();
  }
  if (HasRowPerQuery(chunk.output())) rows_.insert(piece.rows.begin(), piece.rows.end());
  pieces_[chunk.output()].push_back(std::move(piece));
  return absl::OkStatus();
}

absl::Status AttentionAssembly::CheckAxes(const v1::AttentionChunk& chunk,
                                          const v1::Tensor& tensor) const {
  const auto layers = static_cast<uint32_t>(chunk.layers_size());
  const auto heads = static_cast<uint32_t>(chunk.heads_size());
  if (layers == 0 || heads == 0) return Broken("a chunk names no layers or no heads");
  if (has_pairs_ && layers != heads) return Broken("a chunk's layers and heads are no pairs");
  if (tensor.dims(0) != (has_pairs_ || reduces_layers_ ? 1 : layers) ||
      tensor.dims(1) != (reduces_heads_ ? 1 : heads)) {
    return Broken("a tensor's dims disagree with the chunk's layers and heads");
  }
  for (const v1::AttentionRow& row : chunk.rows()) {
    if (row.predicts_position() != row.query_position() + 1) {
      return Broken("a row does not predict the position behind it");
    }
  }
  const auto rows = static_cast<uint32_t>(chunk.rows_size());
  if (HasRowPerQuery(chunk.output())
          ? tensor.dims(2) != rows
          : chunk.output() == v1::ATTENTION_OUTPUT_KIND_COLUMN_SUM && tensor.dims(2) != 1) {
    return Broken("a tensor's dims disagree with the chunk's rows");
  }
  return CheckLastAxis(chunk, tensor.dims(3));
}

absl::Status AttentionAssembly::CheckLastAxis(const v1::AttentionChunk& chunk,
                                              uint32_t length) const {
  bool agrees = true;
  switch (chunk.output()) {
    case v1::ATTENTION_OUTPUT_KIND_STATS:
      agrees = length == kStatistics;
      break;
    case v1::ATTENTION_OUTPUT_KIND_SPAN_MASS:
      agrees = length == spans_;
      break;
    case v1::ATTENTION_OUTPUT_KIND_DENSE:
    case v1::ATTENTION_OUTPUT_KIND_COLUMN_SUM:
      agrees = length == chunk.key_count();
      break;
    case v1::ATTENTION_OUTPUT_KIND_TILE:
      agrees = length <= chunk.key_count();
      break;
    default:
      break;
  }
  if (!agrees) return Broken("a tensor's last axis has the wrong length");
  if (chunk.key_count() > std::numeric_limits<uint32_t>::max() - chunk.key_start()) {
    return Broken("a chunk's keys reach past any position");
  }
  return absl::OkStatus();
}

AttentionAssembly::Piece AttentionAssembly::MakePiece(const v1::AttentionChunk& chunk,
                                                      const v1::Tensor& tensor) const {
  Piece piece;
  piece.layers.assign(chunk.layers().begin(), chunk.layers().end());
  piece.heads.assign(chunk.heads().begin(), chunk.heads().end());
  for (const v1::AttentionRow& row : chunk.rows()) {
    piece.rows.push_back({row.choice(), row.query_position()});
  }
  auto& [layers, heads, queries, last] = piece.axes;
  if (tensor.dims(0) == 1 && (has_pairs_ || reduces_layers_)) {
    layers = {0};
  } else {
    layers.assign(piece.layers.begin(), piece.layers.end());
  }
  for (uint32_t h = 0; h < tensor.dims(1); ++h) {
    const size_t i = h;
    heads.push_back(reduces_heads_ ? 0
                    : has_pairs_   ? Joined(piece.layers[i], piece.heads[i])
                                   : piece.heads[i]);
  }
  for (uint32_t q = 0; q < tensor.dims(2); ++q) {
    const bool has_row = HasRowPerQuery(chunk.output());
    queries.push_back(has_row ? Joined(piece.rows[q].choice, piece.rows[q].position) : q);
  }
  for (uint32_t i = 0; i < tensor.dims(3); ++i) {
    const uint64_t offset = chunk.output() == v1::ATTENTION_OUTPUT_KIND_TILE
                                ? uint64_t{i} * chunk.key_count() / tensor.dims(3)
                                : i;
    last.push_back(chunk.key_start() + offset);
  }
  return piece;
}

absl::Status AttentionAssembly::AddTopK(const v1::AttentionChunk& chunk, Piece* piece) const {
  const v1::Tensor& keys = chunk.top_k().keys();
  const v1::Tensor& weights = chunk.top_k().weights();
  if (keys.dtype() != v1::ELEMENT_TYPE_U32) return Broken("top-k keys are no U32");
  absl::Status status = CheckTensor(keys, 4);
  if (!status.ok()) return status;
  if (!std::equal(keys.dims().begin(), keys.dims().end(), weights.dims().begin())) {
    return Broken("top-k keys and weights differ in shape");
  }
  for (size_t i = 0; i < piece->values.size(); ++i) {
    const uint32_t key = LittleEndian(keys.data(), i * 4, 4);
    const size_t query = i / weights.dims(3) % weights.dims(2);
    if (key != kNoKey && key > piece->rows[query].position) {
      return Broken("a top-k key lies behind its query");
    }
    piece->top_keys.push_back(key);
  }
  if (chunk.top_k().has_tail_mass() == is_scores_) {
    return Broken("top-k has a tail mass with scores, or none with weights");
  }
  if (is_scores_) return absl::OkStatus();
  const v1::Tensor& tail = chunk.top_k().tail_mass();
  status = CheckTensor(tail, 3);
  if (!status.ok()) return status;
  if (tail.dtype() != v1::ELEMENT_TYPE_F32 ||
      !std::equal(tail.dims().begin(), tail.dims().end(), weights.dims().begin())) {
    return Broken("the tail mass differs in shape or type");
  }
  return DecodeFloats(tail, &piece->tail_mass);
}

absl::StatusOr<AttentionTrace> AttentionAssembly::Finish() const {
  if (!end_) return Broken("the trace has no end");
  if (end_->bytes() != bytes_) {
    return Broken(absl::StrCat("the server sent ", end_->bytes(), " bytes, ", bytes_, " came"));
  }
  // A row without any of the wanted keys counts, but has nothing to send.
  const bool may_be_empty = has_key_ranges_ && rows_.size() < end_->rows();
  if (!rows_.empty() && end_->rows() != rows_.size() && !may_be_empty) {
    return Broken(absl::StrCat("the server sent ", end_->rows(), " rows, ", rows_.size(), " came"));
  }
  AttentionTrace trace = {
      .request_id = request_id_, .arrays = {}, .provenance = provenance_, .end = *end_};
  for (const auto& [kind, pieces] : pieces_) {
    absl::StatusOr<AttentionArray> array = Join(kind, pieces);
    if (!array.ok()) return array.status();
    trace.arrays.push_back(*std::move(array));
  }
  return trace;
}

absl::StatusOr<AttentionArray> AttentionAssembly::Join(v1::AttentionOutputKind kind,
                                                       const std::vector<Piece>& pieces) const {
  AttentionArray array = {.kind = kind};
  std::array<std::vector<uint64_t>, 4> axes;
  std::set<AttentionRowId> rows;
  std::set<uint32_t> layers;
  std::set<uint32_t> heads;
  for (const Piece& piece : pieces) {
    for (size_t axis = 0; axis < 4; ++axis) {
      axes[axis].insert(axes[axis].end(), piece.axes[axis].begin(), piece.axes[axis].end());
    }
    rows.insert(piece.rows.begin(), piece.rows.end());
    layers.insert(piece.layers.begin(), piece.layers.end());
    heads.insert(piece.heads.begin(), piece.heads.end());
  }
  size_t elements = 1;
  for (size_t axis = 0; axis < 4; ++axis) {
    axes[axis] = Union(std::move(axes[axis]));
    array.dims[axis] = axes[axis].size();
    if (array.dims[axis] > kMaxAttentionElements / elements) {
      return absl::ResourceExhaustedError("attention: the rows and keys are too far apart");
    }
    elements *= array.dims[axis];
  }
  array.rows.assign(rows.begin(), rows.end());
  array.layers.assign(layers.begin(), layers.end());
  array.heads.assign(heads.begin(), heads.end());
  for (const uint64_t pair : axes[1]) {
    if (!has_pairs_ || reduces_heads_) break;
    array.pairs.push_back({static_cast<uint32_t>(pair >> 32), static_cast<uint32_t>(pair)});
  }
  for (const uint64_t last : axes[3]) array.last.push_back(static_cast<uint32_t>(last));
  absl::Status status = Fill(pieces, axes, &array);
  if (!status.ok()) return status;
  return array;
}

absl::Status AttentionAssembly::Fill(const std::vector<Piece>& pieces,
                                     const std::array<std::vector<uint64_t>, 4>& axes,
                                     AttentionArray* array) const {
  const size_t rows = array->dims[0] * array->dims[1] * array->dims[2];
  const size_t elements = rows * array->dims[3];
  const bool is_top_k = array->kind == v1::ATTENTION_OUTPUT_KIND_TOP_K;
  array->values.resize(elements);
  if (is_top_k) array->top_keys.resize(elements);
  if (is_top_k && !is_scores_) array->tail_mass.resize(rows);
  std::vector<bool> has_come(elements);
  for (const Piece& piece : pieces) {
    if (!Place(piece, axes, array, &has_come)) return Broken("an element came twice");
  }
  const bool is_dense = array->kind == v1::ATTENTION_OUTPUT_KIND_DENSE;
  const float unseen = is_scores_ ? -std::numeric_limits<float>::infinity() : 0.0f;
  for (size_t i = 0; i < elements; ++i) {
    if (has_come[i]) continue;
    const auto position = static_cast<uint32_t>(axes[2][i / array->dims[3] % array->dims[2]]);
    if (!is_dense || array->last[i % array->dims[3]] <= position) {
      return Broken("an element never came");
    }
    array->values[i] = unseen;
  }
  return absl::OkStatus();
}

bool AttentionAssembly::Place(const Piece& piece, const std::array<std::vector<uint64_t>, 4>& axes,
                              AttentionArray* array, std::vector<bool>* has_come) {
  const size_t heads = piece.axes[1].size();
  const size_t queries = piece.axes[2].size();
  const size_t columns = piece.axes[3].size();
  for (size_t row = 0; row < piece.axes[0].size() * heads * queries; ++row) {
    const size_t begin = array->RowBegin(IndexOf(axes[0], piece.axes[0][row / queries / heads]),
                                         IndexOf(axes[1], piece.axes[1][row / queries % heads]),
                                         IndexOf(axes[2], piece.axes[2][row % queries]));
    if (!array->tail_mass.empty()) {
      array->tail_mass[begin / array->dims[3]] = piece.tail_mass[row];
    }
    for (size_t column = 0; column < columns; ++column) {
      const size_t source = row * columns + column;
      const size_t target = begin + IndexOf(axes[3], piece.axes[3][column]);
      if ((*has_come)[target]) return false;
      (*has_come)[target] = true;
      array->values[target] = piece.values[source];
      if (!piece.top_keys.empty()) array->top_keys[target] = piece.top_keys[source];
    }
  }
  return true;
}

}  // namespace vitrine::client
