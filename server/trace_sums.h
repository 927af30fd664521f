// What a trace sums over its rows: attention per key (COLUMN_SUM) and pictures in bins (TILE).
// Sums are in double and in order of position, so they do not depend on how rows came in steps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/attention_plan.h"
#include "server/trace_spec.h"

namespace vitrine::server {

// Equal bins over `count` things: bin b of n holds [b * count / n, (b + 1) * count / n).
struct Bins {
  int64_t count = 0;
  int64_t bins = 0;
  int64_t BinOf(int64_t index) const { return ((index + 1) * bins - 1) / count; }
  int64_t Begin(int64_t bin) const { return bin * count / bins; }
};

class TraceSums {
 public:
  // `spec` must outlive the object.
  explicit TraceSums(const TraceSpec& spec);

  void Add(const AttentionPiece& piece);

  // Wanted key range `range` as far as any wanted row reaches; may be empty.
  KeyRange Keys(size_t range) const { return Below(spec_.keys[range], spec_.end_row()); }

  // [keys of the range], of one cell.
  std::span<const double> ColumnSums(size_t range, int64_t cell) const;

  Bins QueryBins() const;
  Bins KeyBins(size_t range) const;
  // [query bins, key bins], of one cell; numbers of bins that saw no visible pair are `empty`.
  std::vector<float> Tile(size_t range, int64_t cell, float empty) const;

  // Positions of the rows so far.
  const std::vector<int>& positions() const { return positions_; }

 private:
  void AddColumns(int64_t cell, std::span<const float> row);
  void AddTiles(int64_t cell, int position, std::span<const float> row);
  int WindowOf(int64_t cell) const;
  // Visible pairs per bin, [query bins, key bins].
  std::vector<int64_t> VisiblePairs(size_t range, int window) const;

  const TraceSpec& spec_;
  const TraceOutput* tile_ = nullptr;  // Null: not wanted.
  bool wants_columns_ = false;
  std::vector<std::vector<double>> columns_;  // Per range: [cells, keys].
  std::vector<std::vector<double>> tiles_;    // Per range: [cells, query bins, key bins].
  std::vector<int> positions_;
};

}  // namespace vitrine::server
