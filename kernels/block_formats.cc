#include "kernels/block_formats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/check.h"

namespace vitrine {
namespace {

// Reads the fields of blocks, which are packed without alignment and little-endian.
class BlockReader {
 public:
  explicit BlockReader(const std::byte* block) : block_(block) {}

  int U8(int offset) const { return std::to_integer<int>(block_[offset]); }
  int I8(int offset) const { return static_cast<int8_t>(U8(offset)); }
  int U16(int offset) const { return U8(offset) | (U8(offset + 1) << 8); }
  uint32_t U32(int offset) const {
    return static_cast<uint32_t>(U16(offset)) | (static_cast<uint32_t>(U16(offset + 2)) << 16);
  }
  float F16(int offset) const { return FloatFromF16(static_cast<uint16_t>(U16(offset))); }
  int Nibble(int offset, int half) const { return (U8(offset) >> (4 * half)) & 15; }

 private:
  const std::byte* block_;
};

// In the formats with blocks of 32, byte i holds columns i (low nibble) and i + 16 (high nibble).
int SmallBlockNibble(BlockReader block, int offset, int column) {
  return block.Nibble(offset + column % 16, column / 16);
}

void DecodeQ4_0(BlockReader block, float* values) {
  const float d = block.F16(0);
  for (int i = 0; i < 32; ++i) {
    values[i] = d * static_cast<float>(SmallBlockNibble(block, 2, i) - 8);
  }
}

void DecodeQ4_1(BlockReader block, float* values) {
  const float d = block.F16(0);
  const float m = block.F16(2);
  for (int i = 0; i < 32; ++i) {
    values[i] = d * static_cast<float>(SmallBlockNibble(block, 4, i)) + m;
  }
}

void DecodeQ5_0(BlockReader block, float* values) {
  const float d = block.F16(0);
  const uint32_t high = block.U32(2);
  for (int i = 0; i < 32; ++i) {
    const int q = SmallBlockNibble(block, 6, i) | (static_cast<int>((high >> i) & 1u) << 4);
    values[i] = d * static_cast<float>(q - 16);
  }
}

void DecodeQ5_1(BlockReader block, float* values) {
  const float d = block.F16(0);
  const float m = block.F16(2);
  const uint32_t high = block.U32(4);
  for (int i = 0; i < 32; ++i) {
    const int q = SmallBlockNibble(block, 8, i) | (static_cast<int>((high >> i) & 1u) << 4);
    values[i] = d * static_cast<float>(q) + m;
  }
}

void DecodeQ8_0(BlockReader block, float* values) {
  const float d = block.F16(0);
  for (int i = 0; i < 32; ++i) values[i] = d * static_cast<float>(block.I8(2 + i));
}

// Blocks of 256 below: columns go in runs of 32 that share the byte positions of a half (2-bit
// fields) or a quarter (nibbles) of the block.

void DecodeQ2_K(BlockReader block, float* values) {
  const float d = block.F16(80);
  const float dmin = block.F16(82);
  for (int i = 0; i < 256; ++i) {
    const int scale = block.U8(i / 16);
    const int q = (block.U8(16 + i / 128 * 32 + i % 32) >> (i / 32 % 4 * 2)) & 3;
    values[i] = d * static_cast<float>(scale & 15) * static_cast<float>(q) -
                dmin * static_cast<float>(scale >> 4);
  }
}

void DecodeQ3_K(BlockReader block, float* values) {
  const float d = block.F16(108);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 16;
    const int scale_low = block.Nibble(96 + group % 8, group / 8);
    const int scale_high = (block.U8(104 + group % 4) >> (group / 4 * 2)) & 3;
    const int scale = (scale_low | (scale_high << 4)) - 32;
    const int low = (block.U8(32 + i / 128 * 32 + i % 32) >> (i / 32 % 4 * 2)) & 3;
    const int high = (block.U8(i % 32) >> (i / 32)) & 1;
    values[i] = d * static_cast<float>(scale) * static_cast<float>(low + 4 * high - 4);
  }
}

// Q4_K and Q5_K pack eight 6-bit scales and eight 6-bit minimums into 12 bytes at `offset`.
struct ScaleAndMin {
  int scale;
  int min;
};
ScaleAndMin UnpackScaleAndMin(BlockReader block, int offset, int group) {
  if (group < 4) return {block.U8(offset + group) & 63, block.U8(offset + 4 + group) & 63};
  const int low = block.U8(offset + 4 + group);
  return {(low & 15) | (block.U8(offset + group - 4) >> 6 << 4),
          (low >> 4) | (block.U8(offset + group) >> 6 << 4)};
}

void DecodeQ4_K(BlockReader block, float* values) {
  const float d = block.F16(0);
  const float dmin = block.F16(2);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 32;
    const ScaleAndMin unpacked = UnpackScaleAndMin(block, 4, group);
    const int q = block.Nibble(16 + group / 2 * 32 + i % 32, group % 2);
    values[i] = d * static_cast<float>(unpacked.scale) * static_cast<float>(q) -
                dmin * static_cast<float>(unpacked.min);
  }
}

void DecodeQ5_K(BlockReader block, float* values) {
  const float d = block.F16(0);
  const float dmin = block.F16(2);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 32;
    const ScaleAndMin unpacked = UnpackScaleAndMin(block, 4, group);
    const int q = block.Nibble(48 + group / 2 * 32 + i % 32, group % 2) |
                  (((block.U8(16 + i % 32) >> group) & 1) << 4);
    values[i] = d * static_cast<float>(unpacked.scale) * static_cast<float>(q) -
                dmin * static_cast<float>(unpacked.min);
  }
}

void DecodeQ6_K(BlockReader block, float* values) {
  const float d = block.F16(208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int run = i / 32 % 4;
    const int low = block.Nibble(half * 64 + run % 2 * 32 + i % 32, run / 2);
    const int high = (block.U8(128 + half * 32 + i % 32) >> (2 * run)) & 3;
    const int q = (low | (high << 4)) - 32;
    values[i] = d * static_cast<float>(block.I8(192 + i / 16)) * static_cast<float>(q);
  }
}

constexpr std::array<int8_t, 16> kNonLinear4 = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                1,    13,   25,  38,  53,  69,  89,  113};

void DecodeIQ4_NL(BlockReader block, float* values) {
  const float d = block.F16(0);
  for (int i = 0; i < 32; ++i) {
    const auto q = static_cast<size_t>(SmallBlockNibble(block, 2, i));
    values[i] = d * static_cast<float>(kNonLinear4[q]);
  }
}

void DecodeIQ4_XS(BlockReader block, float* values) {
  const float d = block.F16(0);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 32;
    const int scale_low = block.Nibble(4 + group / 2, group % 2);
    const int scale_high = (block.U16(2) >> (2 * group)) & 3;
    const float scale = d * static_cast<float>((scale_low | (scale_high << 4)) - 32);
    const auto q = static_cast<size_t>(SmallBlockNibble(block, 8 + group * 16, i % 32));
    values[i] = scale * static_cast<float>(kNonLinear4[q]);
  }
}

void DecodeBlock(DType dtype, BlockReader block, float* values) {
  switch (dtype) {
    case DType::kF32:
      *values = std::bit_cast<float>(block.U32(0));
      return;
    case DType::kF16:
      *values = block.F16(0);
      return;
    case DType::kBF16:
      *values = FloatFromBf16(static_cast<uint16_t>(block.U16(0)));
      return;
    case DType::kQ4_0:
      DecodeQ4_0(block, values);
      return;
    case DType::kQ4_1:
      DecodeQ4_1(block, values);
      return;
    case DType::kQ5_0:
      DecodeQ5_0(block, values);
      return;
    case DType::kQ5_1:
      DecodeQ5_1(block, values);
      return;
    case DType::kQ8_0:
      DecodeQ8_0(block, values);
      return;
    case DType::kQ2_K:
      DecodeQ2_K(block, values);
      return;
    case DType::kQ3_K:
      DecodeQ3_K(block, values);
      return;
    case DType::kQ4_K:
      DecodeQ4_K(block, values);
      return;
    case DType::kQ5_K:
      DecodeQ5_K(block, values);
      return;
    case DType::kQ6_K:
      DecodeQ6_K(block, values);
      return;
    case DType::kIQ4_NL:
      DecodeIQ4_NL(block, values);
      return;
    case DType::kIQ4_XS:
      DecodeIQ4_XS(block, values);
      return;
  }
}

void Put16(uint16_t bits, std::byte* target) {
  target[0] = std::byte{static_cast<uint8_t>(bits & 0xff)};
  target[1] = std::byte{static_cast<uint8_t>(bits >> 8)};
}

// The reference encoder scales by the rounded inverse, not by a division.
float Inverse(float d) { return d == 0.0f ? 0.0f : 1.0f / d; }

void EncodeQ8_0(const float* values, std::byte* block) {
  float largest = 0.0f;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(values[i]));
  const float d = largest / 127.0f;
  const float inverse = Inverse(d);
  Put16(F16FromFloat(d), block);
  for (int i = 0; i < 32; ++i) {
    const auto q = static_cast<int8_t>(std::round(values[i] * inverse));
    block[2 + i] = std::byte{static_cast<uint8_t>(q)};
  }
}

// Nibbles of clamp(floor(values * inverse + offset), 0, 15); the sum is formed in double because
// the reference encoder is compiled with fused multiply-add.
void EncodeNibbles(const float* values, float subtract, float inverse, double offset,
                   std::byte* bytes) {
  const auto encode = [&](float value) {
    const double q = static_cast<double>(value - subtract) * static_cast<double>(inverse) + offset;
    return static_cast<uint8_t>(std::clamp(q, 0.0, 15.0));
  };
  for (int i = 0; i < 16; ++i) {
    bytes[i] = std::byte{static_cast<uint8_t>(encode(values[i]) | (encode(values[i + 16]) << 4))};
  }
}

void EncodeQ4_0(const float* values, std::byte* block) {
  float extreme = 0.0f;
  for (int i = 0; i < 32; ++i) {
    if (std::fabs(values[i]) > std::fabs(extreme)) extreme = values[i];
  }
  const float d = extreme / -8.0f;
  Put16(F16FromFloat(d), block);
  EncodeNibbles(values, 0.0f, Inverse(d), 8.5, block + 2);
}

void EncodeQ4_1(const float* values, std::byte* block) {
  const auto [min, max] = std::minmax_element(values, values + 32);
  const float d = (*max - *min) / 15.0f;
  Put16(F16FromFloat(d), block);
  Put16(F16FromFloat(*min), block + 2);
  EncodeNibbles(values, *min, Inverse(d), 0.5, block + 4);
}

void EncodeBlock(DType dtype, const float* values, std::byte* block) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(block, values, sizeof(float));
      return;
    case DType::kF16:
      Put16(F16FromFloat(*values), block);
      return;
    case DType::kBF16:
      Put16(Bf16FromFloat(*values), block);
      return;
    case DType::kQ8_0:
      EncodeQ8_0(values, block);
      return;
    case DType::kQ4_0:
      EncodeQ4_0(values, block);
      return;
    case DType::kQ4_1:
      EncodeQ4_1(values, block);
      return;
    default:
      VITRINE_CHECK(CanQuantize(dtype));
  }
}

}  // namespace

void DequantizeRow(DType dtype, const std::byte* row, int64_t columns, float* values) {
  const DTypeTraits traits = TraitsOf(dtype);
  VITRINE_CHECK_EQ(columns % traits.block_columns, 0);
  if (dtype == DType::kF32) {
    std::memcpy(values, row, RowBytes(dtype, columns));
    return;
  }
  for (int64_t column = 0; column < columns; column += traits.block_columns) {
    DecodeBlock(dtype, BlockReader(row), values + column);
    row += traits.block_bytes;
  }
}

bool CanQuantize(DType dtype) {
  return IsFloat(dtype) || dtype == DType::kQ8_0 || dtype == DType::kQ4_0 || dtype == DType::kQ4_1;
}

void QuantizeRow(DType dtype, const float* values, int64_t columns, std::byte* row) {
  const DTypeTraits traits = TraitsOf(dtype);
  VITRINE_CHECK_EQ(columns % traits.block_columns, 0);
  for (int64_t column = 0; column < columns; column += traits.block_columns) {
    EncodeBlock(dtype, values + column, row);
    row += traits.block_bytes;
  }
}

}  // namespace vitrine
