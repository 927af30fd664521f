#include "kernels/cpu/quant_fields.h"

#include "kernels/check.h"

namespace vitrine::cpu {
namespace {

class Reader {
 public:
  explicit Reader(const std::byte* block) : block_(block) {}
  unsigned U8(int offset) const { return std::to_integer<unsigned>(block_[offset]); }
  uint16_t U16(int offset) const {
    return static_cast<uint16_t>(U8(offset) | (U8(offset + 1) << 8));
  }
  // `count` bits of a byte, from bit `shift` on.
  unsigned Bits(int offset, int shift, int count) const {
    return (U8(offset) >> shift) & ((1u << count) - 1u);
  }

 private:
  const std::byte* block_;
};

uint8_t Byte(unsigned value) { return static_cast<uint8_t>(value & 0xffu); }

void ReadQ2(Reader in, QuantFields& fields) {
  for (int i = 0; i < 256; ++i) {
    fields.quants[i] = Byte(in.Bits(16 + i / 128 * 32 + i % 32, i / 32 % 4 * 2, 2));
  }
  for (int g = 0; g < 16; ++g) fields.scales[g] = Byte(in.U8(g));
  fields.scale = in.U16(80);
  fields.minimum = in.U16(82);
}

void ReadQ3(Reader in, QuantFields& fields) {
  for (int i = 0; i < 256; ++i) {
    const unsigned low = in.Bits(32 + i / 128 * 32 + i % 32, i / 32 % 4 * 2, 2);
    fields.quants[i] = Byte(low | (in.Bits(i % 32, i / 32, 1) << 2));
  }
  for (int g = 0; g < 16; ++g) {
    const unsigned low = in.Bits(96 + g % 8, g / 8 * 4, 4);
    fields.scales[g] = Byte((low | (in.Bits(104 + g % 4, g / 4 * 2, 2) << 4)) - 32u);
  }
  fields.scale = in.U16(108);
}

// Eight 6-bit scales and eight 6-bit minimums in the 12 bytes from offset 4 on.
void ReadScalesAndMinimums(Reader in, QuantFields& fields) {
  for (int g = 0; g < 4; ++g) {
    fields.scales[g] = Byte(in.Bits(4 + g, 0, 6));
    fields.minimums[g] = Byte(in.Bits(8 + g, 0, 6));
    fields.scales[g + 4] = Byte(in.Bits(12 + g, 0, 4) | (in.Bits(4 + g, 6, 2) << 4));
    fields.minimums[g + 4] = Byte(in.Bits(12 + g, 4, 4) | (in.Bits(8 + g, 6, 2) << 4));
  }
  fields.scale = in.U16(0);
  fields.minimum = in.U16(2);
}

void ReadQ4(Reader in, QuantFields& fields) {
  for (int i = 0; i < 256; ++i) {
    fields.quants[i] = Byte(in.Bits(16 + i / 64 * 32 + i % 32, i / 32 % 2 * 4, 4));
  }
  ReadScalesAndMinimums(in, fields);
}

void ReadQ5(Reader in, QuantFields& fields) {
  for (int i = 0; i < 256; ++i) {
    const unsigned low = in.Bits(48 + i / 64 * 32 + i % 32, i / 32 % 2 * 4, 4);
    fields.quants[i] = Byte(low | (in.Bits(16 + i % 32, i / 32, 1) << 4));
  }
  ReadScalesAndMinimums(in, fields);
}

void ReadQ6(Reader in, QuantFields& fields) {
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int run = i / 32 % 4;
    const unsigned low = in.Bits(half * 64 + run % 2 * 32 + i % 32, run / 2 * 4, 4);
    fields.quants[i] = Byte(low | (in.Bits(128 + half * 32 + i % 32, 2 * run, 2) << 4));
  }
  for (int g = 0; g < 16; ++g) fields.scales[g] = Byte(in.U8(192 + g));
  fields.scale = in.U16(208);
}

void ReadIq4Xs(Reader in, QuantFields& fields) {
  for (int i = 0; i < 256; ++i) {
    fields.quants[i] = Byte(in.Bits(8 + i / 32 * 16 + i % 16, i / 16 % 2 * 4, 4));
  }
  for (int g = 0; g < 8; ++g) {
    const unsigned high = (static_cast<unsigned>(in.U16(2)) >> (2 * g)) & 3u;
    fields.scales[g] = Byte((in.Bits(4 + g / 2, g % 2 * 4, 4) | (high << 4)) - 32u);
  }
  fields.scale = in.U16(0);
}

}  // namespace

void ReadQuantFields(DType dtype, const std::byte* block, QuantFields& fields) {
  const Reader in(block);
  switch (dtype) {
    case DType::kQ2_K:
      return ReadQ2(in, fields);
    case DType::kQ3_K:
      return ReadQ3(in, fields);
    case DType::kQ4_K:
      return ReadQ4(in, fields);
    case DType::kQ5_K:
      return ReadQ5(in, fields);
    case DType::kQ6_K:
      return ReadQ6(in, fields);
    case DType::kIQ4_XS:
      return ReadIq4Xs(in, fields);
    default:
      VITRINE_CHECK(TraitsOf(dtype).block_columns == 256);
  }
}

}  // namespace vitrine::cpu
