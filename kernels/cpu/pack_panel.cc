#include "kernels/cpu/pack_panel.h"

#include <cstring>

#include "kernels/cpu/quant_fields.h"

namespace vitrine::cpu {
namespace {

constexpr int kPlane = 64;  // Bytes of 4 columns of 16 lanes.

// Copies `words` groups of 4 bytes of one row to their lane; `flip` is added to every byte.
void SpreadQuads(const std::byte* bytes, int words, uint32_t flip, uint8_t* lane) {
  for (int i = 0; i < words; ++i) {
    uint32_t word;
    std::memcpy(&word, bytes + 4 * i, 4);
    word ^= flip;
    std::memcpy(lane + kPlane * i, &word, 4);
  }
}

// Bit k of `bits` is the fifth bit of column k.
void SpreadHighBits(uint32_t bits, uint8_t* lane) {
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 4; ++j) {
      lane[j] = static_cast<uint8_t>(lane[j] | (((bits >> (4 * i + j)) & 1u) << i));
    }
  }
}

// The blocks of 32 columns, which all begin with fp16 numbers.
struct SmallBlock {
  int halves;       // fp16 numbers.
  int high_bytes;   // Fifth bits of all columns.
  int quant_words;  // Nibbles or bytes, in words of 4.
  uint32_t flip;    // int8 to unsigned: + 128.
};

SmallBlock SmallBlockOf(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
      return {2, 0, 4, 0};
    case DType::kQ5_0:
      return {1, 4, 4, 0};
    case DType::kQ5_1:
      return {2, 4, 4, 0};
    case DType::kQ8_0:
      return {1, 0, 8, 0x80808080u};
    default:
      return {1, 0, 4, 0};  // Q4_0 and IQ4_NL.
  }
}

// GGUF keeps columns k and k+16 in one byte, which is exactly the order of the nibble planes.
void PackSmallBlocks(DType dtype, const std::byte* row, int64_t blocks, int lane, uint8_t* target) {
  const SmallBlock format = SmallBlockOf(dtype);
  for (int64_t b = 0; b < blocks; ++b) {
    const std::byte* block = row + b * TraitsOf(dtype).block_bytes;
    uint8_t* packed = target + PackedOffset(dtype, b);
    const std::byte* high = block + 2 * format.halves;
    SpreadQuads(high + format.high_bytes, format.quant_words, format.flip, packed + 4 * lane);
    uint8_t* rest = packed + kPlane * format.quant_words;
    if (format.high_bytes != 0) {
      uint32_t bits;
      std::memcpy(&bits, high, 4);
      SpreadHighBits(bits, rest + 4 * lane);
      rest += kPlane;
    }
    for (int h = 0; h < format.halves; ++h) {
      std::memcpy(rest + 32 * h + 2 * lane, block + 2 * h, 2);
    }
  }
}

// `bits` bits of the quants of 32 columns, from bit `shift` on, `bits` = 1, 2 or 4; returns the end
// of the planes. `nibbles` pair groups i and i+4, narrower planes take groups in order.
uint8_t* SpreadField(const uint8_t* quants, int shift, int bits, int lane, uint8_t* planes) {
  const int groups_per_plane = 8 / bits;
  const unsigned mask = (1u << bits) - 1u;
  for (int group = 0; group < 8; ++group) {
    const int plane = bits == 4 ? group % 4 : group / groups_per_plane;
    const int place = bits == 4 ? group / 4 : group % groups_per_plane;
    uint8_t* out = planes + kPlane * plane + 4 * lane;
    for (int j = 0; j < 4; ++j) {
      const unsigned field = (static_cast<unsigned>(quants[4 * group + j]) >> shift) & mask;
      out[j] = static_cast<uint8_t>(out[j] | (field << (bits * place)));
    }
  }
  return planes + kPlane * bits;
}

uint8_t* SpreadQuants(DType dtype, const uint8_t* quants, int lane, uint8_t* planes) {
  switch (dtype) {
    case DType::kQ2_K:
      return SpreadField(quants, 0, 2, lane, planes);
    case DType::kQ3_K:
      return SpreadField(quants, 2, 1, lane, SpreadField(quants, 0, 2, lane, planes));
    case DType::kQ5_K:
      return SpreadField(quants, 4, 1, lane, SpreadField(quants, 0, 4, lane, planes));
    case DType::kQ6_K:
      return SpreadField(quants, 4, 2, lane, SpreadField(quants, 0, 4, lane, planes));
    default:
      return SpreadField(quants, 0, 4, lane, planes);  // Q4_K and IQ4_XS.
  }
}

void PackLargeBlocks(DType dtype, const std::byte* row, int64_t blocks, int lane, uint8_t* target) {
  const bool has_block_minimums = dtype == DType::kQ4_K || dtype == DType::kQ5_K;
  const bool has_block_scales = has_block_minimums || dtype == DType::kIQ4_XS;
  for (int64_t first = 0; first < blocks; first += 8) {
    QuantFields fields;
    ReadQuantFields(dtype, row + first / 8 * TraitsOf(dtype).block_bytes, fields);
    for (int b = 0; b < 8; ++b) {
      uint8_t* planes = target + PackedOffset(dtype, first + b);
      uint8_t* scales = SpreadQuants(dtype, fields.quants + 32 * b, lane, planes) + lane;
      if (has_block_scales) {
        scales[0] = fields.scales[b];
        if (has_block_minimums) scales[16] = fields.minimums[b];
      } else {
        scales[0] = fields.scales[2 * b];
        scales[16] = fields.scales[2 * b + 1];
      }
    }
    uint8_t* tail = target + PackedOffset(dtype, first + 7) + PackedBlockBytes(dtype);
    std::memcpy(tail + 2 * lane, &fields.scale, 2);
    if (PackedTailBytes(dtype) == 64) std::memcpy(tail + 32 + 2 * lane, &fields.minimum, 2);
  }
}

void PackFloats(const std::byte* row, int64_t columns, size_t element, int lane, uint8_t* target) {
  uint8_t* out = target + static_cast<size_t>(lane) * element;
  for (int64_t k = 0; k < columns; ++k) {
    std::memcpy(out + static_cast<size_t>(k) * kPanelRows * element,
                row + static_cast<size_t>(k) * element, element);
  }
}

}  // namespace

void PackPanel(const PanelSource& source, int64_t columns, uint8_t* target) {
  const DType dtype = source.panel.dtype;
  for (int lane = 0; lane < source.panel.rows; ++lane) {
    const std::byte* row = source.rows + static_cast<size_t>(lane) * source.row_bytes;
    if (IsFloat(dtype)) {
      PackFloats(row, columns, dtype == DType::kF32 ? 4 : 2, lane, target);
    } else if (PackedGroupBlocks(dtype) == 1) {
      PackSmallBlocks(dtype, row, columns / kBlockColumns, lane, target);
    } else {
      PackLargeBlocks(dtype, row, columns / kBlockColumns, lane, target);
    }
  }
}

}  // namespace vitrine::cpu
