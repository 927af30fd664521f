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

using Values = std::array<float, 256>;

Values TableOf(float (*decode)(uint8_t)) {
  Values table{};
  for (size_t bits = 0; bits < table.size(); ++bits)
    table[bits] = decode(static_cast<uint8_t>(bits));
  return table;
}

std::vector<float> ScalesOfRow(const Fp8Scales& grid, int64_t grid_row) {
  std::vector<float> scales(static_cast<size_t>(grid.columns));
  const int64_t first = grid_row * grid.columns;
  if (!grid.are_powers) {
    DequantizeRow(grid.dtype, grid.data + static_cast<size_t>(first) * RowBytes(grid.dtype, 1),
                  grid.columns, scales.data());
    return scales;
  }
  for (size_t i = 0; i < scales.size(); ++i) {
    const int bits = std::to_integer<int>(grid.data[static_cast<size_t>(first) + i]);
    scales[i] =
        bits == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, bits - 127);
  }
  return scales;
}

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

float FloatFromE5M2(uint8_t bits) {
  const int exponent = (bits >> 2) & 31;
  const int mantissa = bits & 3;
  const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) {
    using Limits = std::numeric_limits<float>;
    return mantissa == 0 ? sign * Limits::infinity() : Limits::quiet_NaN();
  }
  const int leading = exponent == 0 ? 0 : 4;
  const int power = (exponent == 0 ? 1 : exponent) - 15 - 2;
  return sign * std::ldexp(static_cast<float>(leading + mantissa), power);
}

void DecodeFp8Row(const WeightView& view, int64_t index, float* values) {
  static const Values kE4M3 = TableOf(FloatFromE4M3);
  static const Values kE5M2 = TableOf(FloatFromE5M2);
  const Fp8Scales& grid = view.scales;
  const Values& table = grid.is_e5m2 ? kE5M2 : kE4M3;
  const int64_t row = view.tensor_row(index);
  const std::vector<float> scales = ScalesOfRow(grid, row / grid.block_rows);
  const std::byte* bytes = view.data + row * view.columns;
  for (int64_t column = 0; column < view.columns; ++column) {
    const float scale = scales[static_cast<size_t>(column / grid.block_columns)];
    values[column] = table[std::to_integer<size_t>(bytes[column])] * scale;
  }
}

}  // namespace vitrine
