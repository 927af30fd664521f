// How a packed block of each weight type becomes operands of the matrix kernels.
//
// A format says how a block decodes to unsigned bytes, how large they get (kLargest), which offset
// made them unsigned and what scales and minimums it has. The kernels are the same for all.
#pragma once

#include "kernels/cpu/packed_panels.h"
#include "kernels/cpu/simd.h"

namespace vitrine::cpu {

inline constexpr int kQuads = kBlockColumns / 4;  // Groups of 4 columns in a block.

// What multiplies and is added to 32 columns of the outputs in one vector: per output a scale and a
// minimum, and for each half of the columns an integer that multiplies them. Fields that a format
// does not have are not set.
template <class P>
struct BlockScales {
  typename P::F scale;
  typename P::F minimum;
  typename P::I half_scales[2];
  typename P::I half_minimums[2];
};

// The same with the weights, as unsigned bytes.
template <class P>
struct DecodedBlock : BlockScales<P> {
  typename P::Bytes quads[kQuads];
};

// Which part of a block the planes of a type take; `half` is the vector of the panel, always 0
// where P has 16 lanes.
template <class P>
struct Planes {
  const uint8_t* bytes;
  int half;

  VITRINE_INLINE typename P::Bytes Plane(int offset) const {
    return P::LoadBytes(bytes + offset + 4 * P::kLanes * half);
  }
  VITRINE_INLINE typename P::F F16(int offset) const {
    return P::LoadF16(bytes + offset + 2 * P::kLanes * half);
  }
  VITRINE_INLINE typename P::I U8(int offset) const {
    return P::LoadU8(bytes + offset + P::kLanes * half);
  }
  VITRINE_INLINE typename P::I I8(int offset) const {
    return P::LoadI8(bytes + offset + P::kLanes * half);
  }

  VITRINE_INLINE void Nibbles(typename P::Bytes* quads) const {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const auto both = Plane(64 * i);
      quads[i] = P::LowNibbles(both);
      quads[4 + i] = P::HighNibbles(both);
    }
  }
  // Adds the bit plane at `offset` to the quads as bit kBit.
  template <int kBit>
  VITRINE_INLINE void AddBits(int offset, typename P::Bytes* quads) const {
    const auto plane = Plane(offset);
    quads[0] = P::Or(quads[0], P::template Field<0, 1, kBit>(plane));
    quads[1] = P::Or(quads[1], P::template Field<1, 1, kBit>(plane));
    quads[2] = P::Or(quads[2], P::template Field<2, 1, kBit>(plane));
    quads[3] = P::Or(quads[3], P::template Field<3, 1, kBit>(plane));
    quads[4] = P::Or(quads[4], P::template Field<4, 1, kBit>(plane));
    quads[5] = P::Or(quads[5], P::template Field<5, 1, kBit>(plane));
    quads[6] = P::Or(quads[6], P::template Field<6, 1, kBit>(plane));
    quads[7] = P::Or(quads[7], P::template Field<7, 1, kBit>(plane));
  }
  // The fields of two planes of two bits, moved to bit kBit.
  template <int kBit>
  VITRINE_INLINE void TwoBits(int offset, typename P::Bytes* quads) const {
    const typename P::Bytes planes[2] = {Plane(offset), Plane(offset + 64)};
    quads[0] = P::template Field<0, 3, kBit>(planes[0]);
    quads[1] = P::template Field<2, 3, kBit>(planes[0]);
    quads[2] = P::template Field<4, 3, kBit>(planes[0]);
    quads[3] = P::template Field<6, 3, kBit>(planes[0]);
    quads[4] = P::template Field<0, 3, kBit>(planes[1]);
    quads[5] = P::template Field<2, 3, kBit>(planes[1]);
    quads[6] = P::template Field<4, 3, kBit>(planes[1]);
    quads[7] = P::template Field<6, 3, kBit>(planes[1]);
  }
};

// The bytes of a block of a panel, and of the end of its group.
template <class P>
VITRINE_INLINE Planes<P> BlockAt(DType dtype, const uint8_t* panel, int block, int half) {
  return {panel + PackedOffset(dtype, block), half};
}
template <class P>
VITRINE_INLINE Planes<P> TailAt(DType dtype, const uint8_t* panel, int block, int half) {
  const int blocks = PackedGroupBlocks(dtype);
  const int last = block / blocks * blocks + blocks - 1;
  return {panel + PackedOffset(dtype, last) + PackedBlockBytes(dtype), half};
}

// Weights that Dot does not take.
template <class Format>
inline constexpr bool kIsWide = Format::kLargest > 128;

// What most formats are.
struct PlainFormat {
  static constexpr int kOffset = 0;           // Was added to make the weights unsigned.
  static constexpr bool kHasMinimum = false;  // minimum is added to scale * (quant - offset).
  static constexpr bool kHasHalfScales = false;
  static constexpr bool kHasHalfMinimums = false;
};

template <class P>
struct Q4_0Format : PlainFormat {
  static constexpr DType kDType = DType::kQ4_0;
  static constexpr int kLargest = 15;
  static constexpr int kOffset = 8;
  static VITRINE_INLINE void Decode(const uint8_t* panel, int b, int half, DecodedBlock<P>& out) {
    const Planes<P> block = BlockAt<P>(kDType, panel, b, half);
    block.Nibbles(out.quads);
    out.scale = block.F16(256);
  }
};

template <class P>
struct Q4_1Format : PlainFormat {
  static constexpr DType kDType = DType::kQ4_1;
  static constexpr int kLargest = 15;
  static constexpr bool kHasMinimum = true;
  static VITRINE_INLINE void Decode(const uint8_t* panel, int b, int half, DecodedBlock<P>& out) {
    const Planes<P> block = BlockAt<P>(kDType, panel, b, half);
    block.Nibbles(out.quads);
    out.scale = block.F16(256);
    out.minimum = block.F16(288);
  }
};

template <class P>
struct Q5_0Format : PlainFormat {
  static constexpr DType kDType = DType::kQ5_0;
  static constexpr int kLargest = 31;
  static constexpr int kOffset = 16;
  static VITRINE_INLINE void Decode(const uint8_t* panel, int b, int half, DecodedBlock<P>& out) {
    const Planes<P> block = BlockAt<P>(kDType, panel, b, half);
    block.Nibbles(out.quads);
    block.template AddBits<4>(256, out.quads);
    out.scale = block.F16(320);
  }
};

template <class P>
struct Q5_1Format : PlainFormat {
  static constexpr DType kDType = DType::kQ5_1;
  static constexpr int kLargest = 31;
  static constexpr bool kHasMinimum = true;
  static VITRINE_INLINE void Decode(const uint8_t* panel, int b, int half, DecodedBlock<P>& out) {
    const Planes<P> block = BlockAt<P>(kDType, panel, b, half);
    block.Nibbles(out.quads);
    block.template AddBits<4>(256, out.quads);
    out.scale = block.F16(320);
    out.minimum = block.F16(352);
  }
};

template <class P>
struct Q8_0Format : PlainFormat {
  static constexpr DType kDType = DType::kQ8_0;
  static constexpr int kLargest = 255;
  static constexpr int kOffset = 128;
  static VITRINE_INLINE void Decode(const uint8_t* panel, int b, int half, DecodedBlock<P>& out) {
    const Planes<P> block = BlockAt<P>(kDType, panel, b, half);
#pragma GCC unroll 8
    for (int i = 0; i < kQuads; ++i) out.quads[i] = block.Plane(64 * i);
    out.scale = block.F16(512);
  }
};

// The 16 values that IQ4_NL and IQ4_XS choose from, + 128.
alignas(16) inline constexpr uint8_t kNonLinearQuants[16] = {
    1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};

template <class P>
struct Iq4NlFormat : PlainFormat {
  static constexpr DType kDType = DType::kIQ4_NL;
  static constexpr int kLargest = 255;
  static constexpr int kOffset = 128;
  static VITRINE_INLINE void Decode(const uint8_t* panel, int b, int half, DecodedBlock<P>& out) {
    const Planes<P> block = BlockAt<P>(kDType, panel, b, half);
    block.Nibbles(out.quads);
#pragma GCC unroll 8
    for (auto& quad : out.quads) quad = P::Lookup(kNonLinearQuants, quad);
    out.scale = block.F16(256);
  }
};

template <class P>
struct Iq4XsFormat : PlainFormat {
  static constexpr DType kDType = DType::kIQ4_XS;
  static constexpr int kLargest = 255;
  static constexpr int kOffset = 128;
  static VITRINE_INLINE void Decode(const uint8_t* panel, int b, int half, DecodedBlock<P>& out) {
    const Planes<P> block = BlockAt<P>(kDType, panel, b, half);
    block.Nibbles(out.quads);
#pragma GCC unroll 8
    for (auto& quad : out.quads) quad = P::Lookup(kNonLinearQuants, quad);
    out.scale = P::Mul(TailAt<P>(kDType, panel, b, half).F16(0), P::ToFloat(block.I8(256)));
  }
};

template <class P>
struct Q2KFormat : PlainFormat {
  static constexpr DType kDType = DType::kQ2_K;
  static constexpr int kLargest = 3;
  static constexpr bool kHasMinimum = true;
  static constexpr bool kHasHalfScales = true;
  static constexpr bool kHasHalfMinimums = true;
  static VITRINE_INLINE void Decode(const uint8_t* panel, int b, int half, DecodedBlock<P>& out) {
    const Planes<P> block = BlockAt<P>(kDType, panel, b, half);
    const Planes<P> tail = TailAt<P>(kDType, panel, b, half);
    block.template TwoBits<0>(0, out.quads);
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const auto both = block.U8(128 + 16 * h);
      out.half_scales[h] = P::AndI(both, P::SetI(15));
      out.half_minimums[h] = P::template ShiftRight<4>(both);
    }
    out.scale = tail.F16(0);
    out.minimum = P::Mul(tail.F16(32), P::Set(-1.0f));
  }
};

template <class P>
struct Q3KFormat : PlainFormat {
  static constexpr DType kDType = DType::kQ3_K;
  static constexpr int kLargest = 7;
  static constexpr int kOffset = 4;
  static constexpr bool kHasHalfScales = true;
  static VITRINE_INLINE void Decode(const uint8_t* panel, int b, int half, DecodedBlock<P>& out) {
    const Planes<P> block = BlockAt<P>(kDType, panel, b, half);
    block.template TwoBits<0>(0, out.quads);
    block.template AddBits<2>(128, out.quads);
    out.half_scales[0] = block.I8(192);
    out.half_scales[1] = block.I8(208);
    out.scale = TailAt<P>(kDType, panel, b, half).F16(0);
  }
};

// Scales and minimums of 6 bits times an fp16 number are exact in f32.
template <class P>
VITRINE_INLINE void DecodeScaleAndMinimum(const Planes<P>& block, int offset, const Planes<P>& tail,
                                          DecodedBlock<P>& out) {
  out.scale = P::Mul(tail.F16(0), P::ToFloat(block.U8(offset)));
  const auto minimum = P::Mul(tail.F16(32), P::ToFloat(block.U8(offset + 16)));
  out.minimum = P::Mul(minimum, P::Set(-1.0f));
}

template <class P>
struct Q4KFormat : PlainFormat {
  static constexpr DType kDType = DType::kQ4_K;
  static constexpr int kLargest = 15;
  static constexpr bool kHasMinimum = true;
  static VITRINE_INLINE void Decode(const uint8_t* panel, int b, int half, DecodedBlock<P>& out) {
    const Planes<P> block = BlockAt<P>(kDType, panel, b, half);
    block.Nibbles(out.quads);
    DecodeScaleAndMinimum(block, 256, TailAt<P>(kDType, panel, b, half), out);
  }
};

template <class P>
struct Q5KFormat : PlainFormat {
  static constexpr DType kDType = DType::kQ5_K;
  static constexpr int kLargest = 31;
  static constexpr bool kHasMinimum = true;
  static VITRINE_INLINE void Decode(const uint8_t* panel, int b, int half, DecodedBlock<P>& out) {
    const Planes<P> block = BlockAt<P>(kDType, panel, b, half);
    block.Nibbles(out.quads);
    block.template AddBits<4>(256, out.quads);
    DecodeScaleAndMinimum(block, 320, TailAt<P>(kDType, panel, b, half), out);
  }
};

template <class P>
struct Q6KFormat : PlainFormat {
  static constexpr DType kDType = DType::kQ6_K;
  static constexpr int kLargest = 63;
  static constexpr int kOffset = 32;
  static constexpr bool kHasHalfScales = true;
  static VITRINE_INLINE void Decode(const uint8_t* panel, int b, int half, DecodedBlock<P>& out) {
    const Planes<P> block = BlockAt<P>(kDType, panel, b, half);
    typename P::Bytes high[kQuads];
    block.Nibbles(out.quads);
    block.template TwoBits<4>(256, high);
#pragma GCC unroll 8
    for (int i = 0; i < kQuads; ++i) out.quads[i] = P::Or(out.quads[i], high[i]);
    out.half_scales[0] = block.I8(384);
    out.half_scales[1] = block.I8(400);
    out.scale = TailAt<P>(kDType, panel, b, half).F16(0);
  }
};

}  // namespace vitrine::cpu
