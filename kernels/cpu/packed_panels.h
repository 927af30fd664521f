// Weight matrices in the order in which the kernels read them.
//
// A panel is 16 output rows of one type: one SIMD lane per output, so that no kernel ever adds
// across lanes. Along the columns it is a row of blocks of 32. Quants are spread over four kinds of
// planes; in all of them byte [lane][j] belongs to column 4i+j of group i of the block:
//
//   nibbles    4 x 64 bytes; vector i has group i in the low halves and group i+4 in the high ones
//   two bits   2 x 64 bytes; bits 2i and 2i+1 of vector v belong to group 4v+i
//   one bit    64 bytes; bit i belongs to group i
//   bytes      8 x 64 bytes, stored as value + 128 because VNNI wants weights unsigned
//
//   Q4_0, IQ4_NL  nibbles                     then 16 fp16 scales
//   Q4_1          nibbles                     then 16 fp16 scales, 16 fp16 minimums
//   Q5_0, Q5_1    nibbles, one bit            then the same as Q4_0, Q4_1
//   Q8_0          bytes                       then 16 fp16 scales
//   Q2_K          two bits                    2 x 16 bytes: scale and minimum in nibbles
//   Q3_K          two bits, one bit           2 x 16 bytes: signed scales
//   Q4_K          nibbles                     16 scales, 16 minimums
//   Q5_K          nibbles, one bit            16 scales, 16 minimums
//   Q6_K          nibbles, two bits           2 x 16 bytes: signed scales
//   IQ4_XS        nibbles                     16 signed scales
//   floats        [32 columns][16 lanes], as the file stores them
//
// In the types with blocks of 256 (K, XS), 8 of these blocks form a group with 16 fp16 scales and,
// for Q2_K, Q4_K and Q5_K, 16 fp16 scales of minimums at its end.
//
// The bytes per weight are about those of the file. Panels follow each other in memory: a worker
// that owns a range of panels reads one sequential stream. Rows and columns that pad a panel are
// zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/buffer.h"
#include "kernels/cpu/simd.h"

namespace vitrine::cpu {

// Bytes of 32 columns of a panel, without what its group adds.
constexpr int PackedBlockBytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 32 * 64;
    case DType::kF16:
    case DType::kBF16:
      return 32 * 32;
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      return 256 + 32;
    case DType::kQ4_1:
      return 256 + 64;
    case DType::kQ5_0:
      return 256 + 64 + 32;
    case DType::kQ5_1:
      return 256 + 64 + 64;
    case DType::kQ8_0:
      return 512 + 32;
    case DType::kQ2_K:
      return 128 + 32;
    case DType::kQ3_K:
      return 128 + 64 + 32;
    case DType::kQ4_K:
      return 256 + 32;
    case DType::kQ5_K:
      return 256 + 64 + 32;
    case DType::kQ6_K:
      return 256 + 128 + 32;
    case DType::kIQ4_XS:
      return 256 + 16;
  }
  return 0;
}

constexpr int PackedGroupBlocks(DType dtype) {
  return TraitsOf(dtype).block_columns == 256 ? 256 / kBlockColumns : 1;
}

// Bytes that follow the blocks of a group.
constexpr int PackedTailBytes(DType dtype) {
  if (PackedGroupBlocks(dtype) == 1) return 0;
  const bool has_minimums = dtype == DType::kQ2_K || dtype == DType::kQ4_K || dtype == DType::kQ5_K;
  return has_minimums ? 64 : 32;
}

// Offset of a block from the start of its panel.
constexpr int64_t PackedOffset(DType dtype, int64_t block) {
  return block * PackedBlockBytes(dtype) +
         block / PackedGroupBlocks(dtype) * PackedTailBytes(dtype);
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

}  // namespace vitrine::cpu
