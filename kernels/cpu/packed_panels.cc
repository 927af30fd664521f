#include "kernels/cpu/packed_panels.h"

#include <algorithm>
#include <cstring>

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
    plan_.bytes += static_cast<size_t>(blocks_ * PackedBlockBytes(part.dtype));
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

// Copies `words` groups of 4 bytes of one row to their lane, 64 bytes apart; `flip` is added to
// every byte.
void SpreadQuads(const std::byte* bytes, int words, uint32_t flip, uint8_t* lane) {
  for (int i = 0; i < words; ++i) {
    uint32_t word;
    std::memcpy(&word, bytes + 4 * i, 4);
    word ^= flip;
    std::memcpy(lane + 64 * i, &word, 4);
  }
}

// A row of a quantised type: `halves` fp16 numbers before the quants of each block.
void PackQuantizedRow(const std::byte* row, int64_t blocks, int halves, int words, uint32_t flip,
                      int lane, uint8_t* target) {
  const int quant_bytes = 64 * words;
  const int file_bytes = 2 * halves + 4 * words;
  const int packed_bytes = quant_bytes + 32 * halves;
  for (int64_t b = 0; b < blocks; ++b) {
    const std::byte* block = row + b * file_bytes;
    uint8_t* packed = target + b * packed_bytes;
    SpreadQuads(block + 2 * halves, words, flip, packed + 4 * lane);
    for (int h = 0; h < halves; ++h) {
      std::memcpy(packed + quant_bytes + 32 * h + 2 * lane, block + 2 * h, 2);
    }
  }
}

void PackFloatRow(const std::byte* row, int64_t columns, size_t element, int lane,
                  uint8_t* target) {
  uint8_t* out = target + static_cast<size_t>(lane) * element;
  for (int64_t k = 0; k < columns; ++k) {
    std::memcpy(out + static_cast<size_t>(k) * kPanelRows * element,
                row + static_cast<size_t>(k) * element, element);
  }
}

void PackRow(DType dtype, const std::byte* row, int64_t columns, int lane, uint8_t* target) {
  constexpr uint32_t kCentre = 0x80808080u;  // int8 to unsigned: + 128.
  const int64_t blocks = BlocksOf(columns);
  switch (dtype) {
    case DType::kF32:
      return PackFloatRow(row, columns, 4, lane, target);
    case DType::kF16:
    case DType::kBF16:
      return PackFloatRow(row, columns, 2, lane, target);
    case DType::kQ4_0:
      return PackQuantizedRow(row, blocks, 1, 4, 0, lane, target);
    case DType::kQ4_1:
      return PackQuantizedRow(row, blocks, 2, 4, 0, lane, target);
    case DType::kQ8_0:
      return PackQuantizedRow(row, blocks, 1, 8, kCentre, lane, target);
    default:
      VITRINE_CHECK(IsPackable(dtype));
  }
}

}  // namespace

bool IsPackable(DType dtype) { return PackedBlockBytes(dtype) != 0; }

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

void PackPanel(const PanelSource& source, int64_t columns, uint8_t* target) {
  for (int lane = 0; lane < source.panel.rows; ++lane) {
    PackRow(source.panel.dtype, source.rows + static_cast<size_t>(lane) * source.row_bytes, columns,
            lane, target);
  }
}

}  // namespace vitrine::cpu
