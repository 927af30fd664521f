#include "kernels/cpu/packed_panels.h"

#include <algorithm>

namespace vitrine::cpu {
namespace {

int64_t BlocksOf(int64_t columns) { return (columns + kBlockColumns - 1) / kBlockColumns; }

int64_t RoundUp(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

class PlanBuilder {
 public:
  explicit PlanBuilder(int64_t columns) : blocks_(BlocksOf(columns)) {}

  // Appends the panel of up to 16 rows of `part` that begin at `row`.
  void Add(const MatrixPart& part, int64_t row, int64_t count, int64_t first_output) {
    PanelSource source;
    source.row_bytes = RowBytes(part.dtype, part.columns);
    source.rows = part.data + static_cast<size_t>(row) * source.row_bytes;
    source.offset = plan_.bytes;
    source.panel.first_row = first_output;
    source.panel.rows = static_cast<int>(std::min<int64_t>(count, kPanelRows));
    source.panel.dtype = part.dtype;
    plan_.panels.push_back(source);
    plan_.bytes += static_cast<size_t>(PackedOffset(part.dtype, blocks_));
  }

  // Appends rows [0, rows) of a part, the panels of each run of `run` rows on their own.
  void AddRuns(const MatrixPart& part, int64_t run, int64_t first_output) {
    for (int64_t begin = 0; begin < part.rows; begin += run) {
      const int64_t end = std::min(begin + run, part.rows);
      for (int64_t row = begin; row < end; row += kPanelRows) {
        Add(part, row, end - row, first_output + row);
      }
    }
  }

  PanelPlan Take() { return std::move(plan_); }

 private:
  int64_t blocks_;
  PanelPlan plan_;
};

}  // namespace

CpuMatrix::CpuMatrix(const MatrixSource& source, std::vector<Panel> panels, Buffer memory)
    : PackedMatrix(
          [&] {
            int64_t rows = 0;
            for (const MatrixPart& part : source.parts) rows += part.rows;
            return rows;
          }(),
          source.parts[0].columns, source.layout),
      memory_(std::move(memory)),
      panels_(std::move(panels)),
      blocks_(static_cast<int>(BlocksOf(source.parts[0].columns))) {
  if (source.layout == RowLayout::kHeads) {
    panels_per_head_ = static_cast<int>(RoundUp(source.head_dim, kPanelRows)) / kPanelRows;
  }
  for (const Panel& panel : panels_) {
    (IsFloat(panel.dtype) ? has_float_panels_ : has_quantized_panels_) = true;
  }
}

CpuMatrix::Lane CpuMatrix::LaneOf(int64_t row) const {
  const auto after =
      std::upper_bound(panels_.begin(), panels_.end(), row,
                       [](int64_t value, const Panel& panel) { return value < panel.first_row; });
  const Panel& panel = *(after - 1);
  return {&panel, static_cast<int>(row - panel.first_row)};
}

PanelPlan PlanPanels(const MatrixSource& source) {
  PlanBuilder builder(source.parts[0].columns);
  int64_t first_output = 0;
  if (source.layout == RowLayout::kGateUp) {
    const int64_t rows = source.parts[0].rows;
    for (int64_t row = 0; row < rows; row += kPanelRows) {
      builder.Add(source.parts[0], row, rows - row, row);
      builder.Add(source.parts[1], row, rows - row, rows + row);
    }
    return builder.Take();
  }
  for (const MatrixPart& part : source.parts) {
    builder.AddRuns(part, source.layout == RowLayout::kHeads ? source.head_dim : part.rows,
                    first_output);
    first_output += part.rows;
  }
  return builder.Take();
}

}  // namespace vitrine::cpu
