// Weight matrices in the order in which the kernels read them.
//
// A panel is 16 output rows of one type: one SIMD lane per output, so that no kernel ever adds
// across lanes. Along the columns it is a row of blocks of 32; a packed block holds
//
//   4-bit types  4 x 64 bytes. Byte [i][lane][j] carries column 4i+j in its low nibble and column
//                16+4i+j in its high nibble: one load feeds two integer dot products.
//   Q8_0         8 x 64 bytes, [i][lane][j] is column 4i+j, stored as value + 128 because VNNI
//                wants weights unsigned.
//   then 16 fp16 scales and, for Q4_1, 16 fp16 minimums;
//   floats       [32 columns][16 lanes], as the file stores them.
//
// The bytes per weight are those of the file. Panels follow each other in memory: a worker that
// owns a range of panels reads one sequential stream. Rows and columns that pad a panel are zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/buffer.h"
#include "kernels/cpu/simd.h"

namespace vitrine::cpu {

// False where no kernel reads the type.
bool IsPackable(DType dtype);

// Bytes of 32 columns of a panel.
constexpr int PackedBlockBytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 32 * 64;
    case DType::kF16:
      return 32 * 32;
    case DType::kBF16:
      return 32 * 32;
    case DType::kQ4_0:
      return 256 + 32;
    case DType::kQ4_1:
      return 256 + 64;
    case DType::kQ8_0:
      return 512 + 32;
    default:
      return 0;
  }
}

struct Panel {
  const uint8_t* data = nullptr;
  int64_t first_row = 0;  // Output of lane 0.
  int rows = 0;           // Lanes in use, 1..16.
  DType dtype = DType::kF32;
};

class CpuMatrix final : public PackedMatrix {
 public:
  CpuMatrix(const MatrixSource& source, std::vector<Panel> panels, Buffer memory);

  // The place of one output.
  struct Lane {
    const Panel* panel;
    int lane;
  };

  const std::vector<Panel>& panels() const { return panels_; }
  Lane LaneOf(int64_t row) const;  // Not for kGateUp, whose panels are not in output order.
  int blocks() const { return blocks_; }
  // kHeads: panels of one head. kGateUp: panels come in pairs, gate and up of the same rows.
  int panels_per_head() const { return panels_per_head_; }
  bool has_float_panels() const { return has_float_panels_; }
  bool has_quantized_panels() const { return has_quantized_panels_; }
  size_t bytes() const override { return memory_.bytes(); }

 private:
  Buffer memory_;
  std::vector<Panel> panels_;
  bool has_float_panels_ = false;
  bool has_quantized_panels_ = false;
  int blocks_;
  int panels_per_head_ = 0;
};

// A panel to be packed and where its rows are.
struct PanelSource {
  const std::byte* rows = nullptr;  // First row in the file.
  size_t row_bytes = 0;
  size_t offset = 0;  // Of the packed panel from the start of the matrix.
  Panel panel;        // Its data is null.
};

// Cuts a matrix into panels in output order.
struct PanelPlan {
  std::vector<PanelSource> panels;
  size_t bytes = 0;
};
PanelPlan PlanPanels(const MatrixSource& source);

// Packs one panel to `target`, which is zeroed.
void PackPanel(const PanelSource& source, int64_t columns, uint8_t* target);

}  // namespace vitrine::cpu
