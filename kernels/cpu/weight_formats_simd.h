// How a packed block of each weight type becomes operands of the matrix kernels.
//
// A format says where its bytes are, how they decode to unsigned bytes, which offset made them
// unsigned and whether the block has a minimum. The kernels are the same for all.
#pragma once

#include "kernels/cpu/packed_panels.h"
#include "kernels/cpu/simd.h"

namespace vitrine::cpu {

inline constexpr int kQuads = kBlockColumns / 4;  // Groups of 4 columns in a block.

// 32 columns of the outputs in one vector: unsigned bytes with a scale and a minimum per output.
template <class P>
struct DecodedBlock {
  typename P::Bytes quads[kQuads];
  typename P::F scale;
  typename P::F minimum;
};

template <class P>
VITRINE_INLINE void DecodeNibbles(const uint8_t* block, DecodedBlock<P>& out) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const auto both = P::LoadBytes(block + 64 * i);
    out.quads[i] = P::LowNibbles(both);
    out.quads[4 + i] = P::HighNibbles(both);
  }
}

// `half` is the vector of the panel: always 0 where P has 16 lanes.
template <class P>
struct Q4_0Format {
  static constexpr DType kDType = DType::kQ4_0;
  static constexpr int kOffset = 8;
  static constexpr bool kHasMinimum = false;
  static constexpr bool kIsWide = false;
  static VITRINE_INLINE void Decode(const uint8_t* block, int half, DecodedBlock<P>& out) {
    DecodeNibbles<P>(block + 4 * P::kLanes * half, out);
    out.scale = P::LoadF16(block + 256 + 2 * P::kLanes * half);
  }
};

template <class P>
struct Q4_1Format {
  static constexpr DType kDType = DType::kQ4_1;
  static constexpr int kOffset = 0;
  static constexpr bool kHasMinimum = true;
  static constexpr bool kIsWide = false;
  static VITRINE_INLINE void Decode(const uint8_t* block, int half, DecodedBlock<P>& out) {
    DecodeNibbles<P>(block + 4 * P::kLanes * half, out);
    out.scale = P::LoadF16(block + 256 + 2 * P::kLanes * half);
    out.minimum = P::LoadF16(block + 288 + 2 * P::kLanes * half);
  }
};

template <class P>
struct Q8_0Format {
  static constexpr DType kDType = DType::kQ8_0;
  static constexpr int kOffset = 128;
  static constexpr bool kHasMinimum = false;
  static constexpr bool kIsWide = true;
  static VITRINE_INLINE void Decode(const uint8_t* block, int half, DecodedBlock<P>& out) {
#pragma GCC unroll 8
    for (int i = 0; i < kQuads; ++i) {
      out.quads[i] = P::LoadBytes(block + 64 * i + 4 * P::kLanes * half);
    }
    out.scale = P::LoadF16(block + 512 + 2 * P::kLanes * half);
  }
};

}  // namespace vitrine::cpu
