#include "server/trace_sums.h"

#include <algorithm>
#include <limits>

namespace vitrine::server {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

size_t Size(int64_t a, int64_t b) { return static_cast<size_t>(a) * static_cast<size_t>(b); }

int FirstKey(int window, int position) {
  return window == 0 ? 0 : std::max(0, position - window + 1);
}

}  // namespace

TraceSums::TraceSums(const TraceSpec& spec) : spec_(spec) {
  for (const TraceOutput& output : spec.outputs) {
    if (output.kind == TraceOutputKind::kColumnSum) wants_columns_ = true;
    if (output.kind == TraceOutputKind::kTile) tile_ = &output;
  }
  const int64_t cells = spec.plan.cells();
  for (size_t range = 0; range < spec.keys.size(); ++range) {
    const KeyRange keys = Keys(range);
    if (wants_columns_) columns_.emplace_back(Size(cells, keys.end - keys.begin), 0.0);
    if (tile_ == nullptr) continue;
    const double start = tile_->combine == AttentionCombine::kMax ? kNothing : 0.0;
    tiles_.emplace_back(Size(cells, QueryBins().bins * KeyBins(range).bins), start);
  }
}

Bins TraceSums::QueryBins() const {
  const int64_t rows = spec_.rows_per_choice();
  return {.count = rows, .bins = std::min<int64_t>(rows, tile_->query_bins)};
}

Bins TraceSums::KeyBins(size_t range) const {
  const KeyRange keys = Keys(range);
  const int64_t count = keys.end - keys.begin;
  return {.count = count, .bins = std::min<int64_t>(count, tile_->key_bins)};
}

void TraceSums::Add(const AttentionPiece& piece) {
  if (piece.first_layer == 0 && piece.first_head == 0) {
    for (int row = 0; row < piece.rows; ++row) positions_.push_back(piece.first_position + row);
  }
  const auto columns = static_cast<size_t>(piece.key_columns);
  const float* values = piece.values.data();
  for (int layer = 0; layer < piece.layers; ++layer) {
    for (int head = 0; head < piece.heads; ++head) {
      const int64_t cell =
          int64_t{piece.first_layer + layer} * spec_.plan.head_axis() + piece.first_head + head;
      for (int row = 0; row < piece.rows; ++row, values += columns) {
        const int position = piece.first_position + row;
        const std::span<const float> visible(values, static_cast<size_t>(position) + 1);
        if (wants_columns_) AddColumns(cell, visible);
        if (tile_ != nullptr) AddTiles(cell, position, visible);
      }
    }
  }
}

void TraceSums::AddColumns(int64_t cell, std::span<const float> row) {
  for (size_t range = 0; range < spec_.keys.size(); ++range) {
    const KeyRange keys = Keys(range);
    const KeyRange seen = Below(keys, static_cast<int>(row.size()));
    double* sums = columns_[range].data() + Size(cell, keys.end - keys.begin);
    for (int key = seen.begin; key < seen.end; ++key) {
      *sums++ += static_cast<double>(row[static_cast<size_t>(key)]);
    }
  }
}

void TraceSums::AddTiles(int64_t cell, int position, std::span<const float> row) {
  const Bins queries = QueryBins();
  const int64_t query_bin = queries.BinOf(spec_.RowIndex(position));
  const int first_key = FirstKey(WindowOf(cell), position);
  for (size_t range = 0; range < spec_.keys.size(); ++range) {
    const Bins bins = KeyBins(range);
    if (bins.count == 0) continue;
    const KeyRange keys = Keys(range);
    double* tile = tiles_[range].data() + Size(cell * queries.bins + query_bin, bins.bins);
    const int end = std::min(keys.end, static_cast<int>(row.size()));
    for (int key = std::max(keys.begin, first_key); key < end; ++key) {
      double& number = tile[bins.BinOf(key - keys.begin)];
      const auto value = static_cast<double>(row[static_cast<size_t>(key)]);
      number = tile_->combine == AttentionCombine::kMax ? std::max(number, value) : number + value;
    }
  }
}

int TraceSums::WindowOf(int64_t cell) const {
  const AttentionPlan& plan = spec_.plan;
  // Of several layers that became one, the widest.
  if (plan.reduce_layers.has_value() || (plan.is_paired && plan.reduce_heads.has_value())) {
    const bool is_open = std::ranges::find(spec_.windows, 0) != spec_.windows.end();
    return is_open ? 0 : *std::ranges::max_element(spec_.windows);
  }
  return spec_.windows[static_cast<size_t>(plan.is_paired ? cell : cell / plan.head_axis())];
}

std::span<const double> TraceSums::ColumnSums(size_t range, int64_t cell) const {
  const KeyRange keys = Keys(range);
  const auto count = static_cast<size_t>(keys.end - keys.begin);
  return std::span(columns_[range]).subspan(static_cast<size_t>(cell) * count, count);
}

std::vector<int64_t> TraceSums::VisiblePairs(size_t range, int window) const {
  const Bins queries = QueryBins();
  const Bins bins = KeyBins(range);
  const KeyRange keys = Keys(range);
  std::vector<int64_t> pairs(Size(queries.bins, bins.bins), 0);
  for (const int position : positions_) {
    int64_t* row = pairs.data() + Size(queries.BinOf(spec_.RowIndex(position)), bins.bins);
    const int64_t begin = std::max(FirstKey(window, position), keys.begin) - keys.begin;
    const int64_t end = std::min(position + 1, keys.end) - keys.begin;
    for (int64_t bin = 0; bin < bins.bins; ++bin) {
      row[bin] += std::max<int64_t>(
          0, std::min(end, bins.Begin(bin + 1)) - std::max(begin, bins.Begin(bin)));
    }
  }
  return pairs;
}

std::vector<float> TraceSums::Tile(size_t range, int64_t cell, float empty) const {
  const size_t size = Size(QueryBins().bins, KeyBins(range).bins);
  const double* sums = tiles_[range].data() + static_cast<size_t>(cell) * size;
  std::vector<float> tile(size, empty);
  const bool is_max = tile_->combine == AttentionCombine::kMax;
  const std::vector<int64_t> pairs =
      is_max ? std::vector<int64_t>() : VisiblePairs(range, WindowOf(cell));
  for (size_t i = 0; i < size; ++i) {
    if (is_max && sums[i] != kNothing) tile[i] = static_cast<float>(sums[i]);
    if (!is_max && pairs[i] > 0) {
      tile[i] = static_cast<float>(sums[i] / static_cast<double>(pairs[i]));
    }
  }
  return tile;
}

}  // namespace vitrine::server
