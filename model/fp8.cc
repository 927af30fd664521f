#include "model/fp8.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/block_formats.h"

namespace vitrine {
namespace {

constexpr int kMantissaBits = 3;
constexpr int kBias = 7;

}  // namespace

float FloatFromE4M3(uint8_t bits) {
  const int exponent = (bits >> kMantissaBits) & 15;
  const int mantissa = bits & 7;
  const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  // Subnormal numbers have the exponent of the smallest normal ones, and no leading one.
  const int leading = exponent == 0 ? 0 : 1 << kMantissaBits;
  const int power = (exponent == 0 ? 1 : exponent) - kBias - kMantissaBits;
  return sign * std::ldexp(static_cast<float>(leading + mantissa), power);
}

void DecodeFp8Row(const WeightView& view, int64_t index, float* values) {
  static const std::array<float, 256> kValues = [] {
    std::array<float, 256> table{};
    for (size_t bits = 0; bits < table.size(); ++bits) {
      table[bits] = FloatFromE4M3(static_cast<uint8_t>(bits));
    }
    return table;
  }();
  const Fp8Scales& grid = view.scales;
  const int64_t row = view.tensor_row(index);
  std::vector<float> scales(static_cast<size_t>(grid.columns));
  const int64_t first = row / grid.block_rows * grid.columns;
  DequantizeRow(grid.dtype, grid.data + static_cast<size_t>(first) * RowBytes(grid.dtype, 1),
                grid.columns, scales.data());
  const std::byte* bytes = view.data + row * view.columns;
  for (int64_t column = 0; column < view.columns; ++column) {
    const float scale = scales[static_cast<size_t>(column / grid.block_columns)];
    values[column] = kValues[std::to_integer<size_t>(bytes[column])] * scale;
  }
}

}  // namespace vitrine
