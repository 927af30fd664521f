#include "kernels/cuda/weight_packing.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/block_formats.h"
#include "kernels/check.h"

namespace vitrine::cuda {
namespace {

constexpr float kLargestF16 = 65504.0f;

int64_t RoundUp(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

uint16_t Get16(const std::byte* source) {
  uint16_t bits;
  std::memcpy(&bits, source, sizeof bits);
  return bits;
}

// 16-bit floats.
HostWeights PackFloats(WeightFormat format, std::span<const SourceRow> rows, int64_t columns) {
  HostWeights packed{.format = format,
                     .rows = static_cast<int>(rows.size()),
                     .columns = static_cast<int>(RoundUp(columns, kBlockColumns)),
                     .values = {},
                     .scales = {},
                     .minima = {}};
  const size_t row_bytes = static_cast<size_t>(packed.columns) * sizeof(uint16_t);
  packed.values.resize(rows.size() * row_bytes);
  std::vector<float> values(static_cast<size_t>(columns));
  for (size_t r = 0; r < rows.size(); ++r) {
    if (rows[r].data == nullptr) continue;
    DequantizeRow(rows[r].dtype, rows[r].data, columns, values.data());
    std::byte* row = packed.values.data() + r * row_bytes;
    for (size_t c = 0; c < values.size(); ++c) {
      const bool is_f16 = format == WeightFormat::kF16;
      const uint16_t bits = is_f16 ? F16FromFloat(values[c]) : Bf16FromFloat(values[c]);
      std::memcpy(row + c * sizeof bits, &bits, sizeof bits);
    }
  }
  return packed;
}

HostWeights PackColumns(std::span<const SourceRow> rows, int64_t columns) {
  HostWeights packed{.format = WeightFormat::kF32Columns,
                     .rows = static_cast<int>(rows.size()),
                     .columns = static_cast<int>(columns),
                     .values = {},
                     .scales = {},
                     .minima = {}};
  packed.values.resize(rows.size() * static_cast<size_t>(columns) * sizeof(float));
  std::vector<float> values(static_cast<size_t>(columns));
  for (size_t r = 0; r < rows.size(); ++r) {
    if (rows[r].data == nullptr) continue;
    DequantizeRow(rows[r].dtype, rows[r].data, columns, values.data());
    for (size_t c = 0; c < values.size(); ++c) {
      std::memcpy(packed.values.data() + (c * rows.size() + r) * sizeof(float), &values[c],
                  sizeof(float));
    }
  }
  return packed;
}

// Quants of one file block, in column order: the low halves of 16 bytes, then the high halves.
int Nibble(const std::byte* quants, int i) {
  const int byte = std::to_integer<int>(quants[i % 16]);
  return i < 16 ? byte & 0xf : byte >> 4;
}

void PackQuants(WeightFormat format, const std::byte* quants, int block, std::byte* chunk) {
  for (int i = 0; i < kBlockColumns; ++i) {
    if (format == WeightFormat::kQ8_0) {
      chunk[Q8Position(block, i)] = quants[i];
    } else {
      const int at = Q4Position(block, i);
      chunk[at / 2] |= static_cast<std::byte>(Nibble(quants, i) << (at % 2 * 4));
    }
  }
}

HostWeights PackBlocks(WeightFormat format, std::span<const SourceRow> rows, int64_t columns) {
  HostWeights packed{.format = format,
                     .rows = static_cast<int>(rows.size()),
                     .columns = static_cast<int>(columns),
                     .values = {},
                     .scales = {},
                     .minima = {}};
  const auto row_blocks = static_cast<size_t>(columns / kBlockColumns);
  const size_t chunks = (row_blocks + kQuantChunkBlocks - 1) / kQuantChunkBlocks;
  const size_t chunk_bytes =
      format == WeightFormat::kQ8_0 ? kQuantChunkColumns : kQuantChunkColumns / 2;
  const bool has_min = format == WeightFormat::kQ4_1;
  packed.values.resize(rows.size() * chunks * chunk_bytes);
  packed.scales.resize(rows.size() * chunks * kQuantChunkBlocks);
  if (has_min) packed.minima.resize(packed.scales.size());
  for (size_t r = 0; r < rows.size(); ++r) {
    if (rows[r].data == nullptr) continue;
    const auto block_bytes = static_cast<size_t>(TraitsOf(rows[r].dtype).block_bytes);
    for (size_t b = 0; b < row_blocks; ++b) {
      const std::byte* source = rows[r].data + b * block_bytes;
      const size_t chunk = r * chunks + b / kQuantChunkBlocks;
      const size_t block = chunk * kQuantChunkBlocks + b % kQuantChunkBlocks;
      packed.scales[block] = Get16(source);
      if (has_min) packed.minima[block] = Get16(source + 2);
      PackQuants(format, source + (has_min ? 4 : 2), static_cast<int>(b % kQuantChunkBlocks),
                 packed.values.data() + chunk * chunk_bytes);
    }
  }
  return packed;
}

WeightFormat FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return WeightFormat::kF32Columns;
    case DType::kBF16:
      return WeightFormat::kBF16;
    case DType::kQ8_0:
      return WeightFormat::kQ8_0;
    case DType::kQ4_0:
      return WeightFormat::kQ4_0;
    case DType::kQ4_1:
      return WeightFormat::kQ4_1;
    default:
      return WeightFormat::kF16;
  }
}

}  // namespace

WeightFormat FormatFor(std::span<const DType> dtypes) {
  VITRINE_CHECK(!dtypes.empty());
  const WeightFormat first = FormatOf(dtypes[0]);
  const auto is_first = [&](DType dtype) { return FormatOf(dtype) == first; };
  if (std::ranges::all_of(dtypes, is_first)) return first;
  // BF16 has values that F16 lacks; F32 holds all of both.
  const auto is_wide = [](DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; };
  return std::ranges::any_of(dtypes, is_wide) ? WeightFormat::kF32Columns : WeightFormat::kF16;
}

HostWeights PackRows(WeightFormat format, std::span<const SourceRow> rows, int64_t columns) {
  switch (format) {
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      return PackFloats(format, rows, columns);
    case WeightFormat::kQ8_0:
    case WeightFormat::kQ4_0:
    case WeightFormat::kQ4_1:
      return PackBlocks(format, rows, columns);
    case WeightFormat::kF32Columns:
      break;
  }
  return PackColumns(rows, columns);
}

std::vector<SourceRow> InterleaveGateUp(std::span<const SourceRow> gate,
                                        std::span<const SourceRow> up) {
  const auto groups =
      static_cast<size_t>(RoundUp(static_cast<int64_t>(gate.size()), kGatedGroup)) / kGatedGroup;
  std::vector<SourceRow> rows(groups * 2 * kGatedGroup);
  for (size_t i = 0; i < gate.size(); ++i) {
    const size_t at = i / kGatedGroup * 2 * kGatedGroup + i % kGatedGroup;
    rows[at] = gate[i];
    rows[at + kGatedGroup] = up[i];
  }
  return rows;
}

bool FitsF16(std::span<const SourceRow> rows, int64_t columns) {
  std::vector<float> values(static_cast<size_t>(columns));
  for (const SourceRow& row : rows) {
    if (row.data == nullptr) continue;
    DequantizeRow(row.dtype, row.data, columns, values.data());
    const auto overflows = [](float x) { return std::isfinite(x) && std::fabs(x) > kLargestF16; };
    if (std::ranges::any_of(values, overflows)) return false;
  }
  return true;
}

}  // namespace vitrine::cuda
