// What a lane of a warp holds of one chunk of two weight rows, and the operands of the matrix
// instruction that it makes of them. All formats give lane q of four the columns 8q .. 8q + 7 of
// every block of 32, so activations are loaded alike for all.
#pragma once

#include "kernels/cuda/device_weights.h"
#include "kernels/cuda/ptx.h"

namespace vitrine::cuda {

// Operand A of two steps, which together cover a block of 32 columns of 16 rows. The lane's rows
// are lane / 4 and lane / 4 + 8.
struct Fragments {
  uint32_t a[2][4];
};

__device__ inline uint32_t Word(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
__device__ inline uint4 LoadStream(const void* p) {  // Read once: do not keep in cache.
  return __ldcs(static_cast<const uint4*>(p));
}
__device__ inline Fragments FragmentsOf(const uint4& row0, const uint4& row8) {
  return {{{row0.x, row8.x, row0.y, row8.y}, {row0.z, row8.z, row0.w, row8.w}}};
}

// kTerms: how many bf16 values stand for one weight. kBlocks: blocks per chunk.
struct Bf16Chunk {
  static constexpr int kBlocks = 4, kTerms = 1;
  static constexpr bool kScaled = false, kHasMin = false;
  uint4 w[2][kBlocks];

  __device__ void Load(const DeviceWeights& m, const int (&rows)[2], int chunk, int q) {
    const auto* base = static_cast<const __nv_bfloat16*>(m.values);
    GPU_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      const int column = (chunk * kBlocks + b) * kBlockColumns + q * 8;
      GPU_UNROLL
      for (int r = 0; r < 2; ++r) {
        w[r][b] = column < m.columns
                      ? LoadStream(base + static_cast<size_t>(rows[r]) * m.columns + column)
                      : make_uint4(0, 0, 0, 0);
      }
    }
  }
  __device__ Fragments Block(int b, int) const { return FragmentsOf(w[0][b], w[1][b]); }
};

// An f16 value is the exact sum of two bf16 values.
struct F16Chunk {
  static constexpr int kBlocks = 4, kTerms = 2;
  static constexpr bool kScaled = false, kHasMin = false;
  Bf16Chunk halves;  // The same 16-bit layout.

  __device__ void Load(const DeviceWeights& m, const int (&rows)[2], int chunk, int q) {
    halves.Load(m, rows, chunk, q);
  }
  __device__ static uint32_t Term(uint32_t pair, int term) {
    const float2 value = __half22float2(*reinterpret_cast<const __half2*>(&pair));
    const uint32_t high = gpu::PackBf16(value.x, value.y);
    if (term == 0) return high;
    const float2 rounded = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&high));
    return gpu::PackBf16(value.x - rounded.x, value.y - rounded.y);
  }
  __device__ Fragments Block(int b, int term) const {
    Fragments f = halves.Block(b, 0);
    GPU_UNROLL
    for (int s = 0; s < 2; ++s) {
      GPU_UNROLL
      for (int i = 0; i < 4; ++i) f.a[s][i] = Term(f.a[s][i], term);
    }
    return f;
  }
};

// Four f16 values of a chunk, one per block.
struct BlockHalves {
  uint2 bits;
  __device__ void Load(const __half* plane, const DeviceWeights& m, int row, int chunk) {
    const size_t at = (static_cast<size_t>(row) * m.QuantChunks() + chunk) * kQuantChunkBlocks;
    bits = *reinterpret_cast<const uint2*>(plane + at);
  }
  __device__ float Get(int b) const {
    const uint32_t pair = b < 2 ? bits.x : bits.y;
    const auto half_bits = static_cast<unsigned short>(b % 2 != 0 ? pair >> 16 : pair & 0xffffu);
    return __half2float(__ushort_as_half(half_bits));
  }
};

// Quants enter the matrix instruction as exact integers; scale and minimum follow in f32.
template <bool kWithMin>
struct Q4Chunk {
  static constexpr int kBlocks = kQuantChunkBlocks, kTerms = 1;
  static constexpr bool kScaled = true, kHasMin = kWithMin;
  uint4 w[2];
  BlockHalves scale[2], min[2];

  __device__ void Load(const DeviceWeights& m, const int (&rows)[2], int chunk, int q) {
    GPU_UNROLL
    for (int r = 0; r < 2; ++r) {
      const size_t at =
          (static_cast<size_t>(rows[r]) * m.QuantChunks() + chunk) * (kQuantChunkColumns / 2);
      w[r] = LoadStream(static_cast<const unsigned char*>(m.values) + at + q * 16);
      scale[r].Load(m.scales, m, rows[r], chunk);
      if (kWithMin) min[r].Load(m.minima, m, rows[r], chunk);
    }
  }
  // Two of the eight nibbles as bf16: 0x4300 | n is 128 + n exactly. Q4_0 is centred at 8.
  __device__ static uint32_t Pair(uint32_t word, int shift) {
    const uint32_t n = word >> shift;
    const uint32_t biased = (n & 0xfu) | ((n & 0xf00u) << 8) | 0x43004300u;
    const uint32_t bias = kWithMin ? 0x43004300u : 0x43084308u;
    const __nv_bfloat162 d = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&biased),
                                     *reinterpret_cast<const __nv_bfloat162*>(&bias));
    return *reinterpret_cast<const uint32_t*>(&d);
  }
  __device__ Fragments Block(int b, int) const {
    const uint32_t r0 = Word(w[0], b), r8 = Word(w[1], b);
    return {{{Pair(r0, 0), Pair(r8, 0), Pair(r0, 16), Pair(r8, 16)},
             {Pair(r0, 4), Pair(r8, 4), Pair(r0, 20), Pair(r8, 20)}}};
  }
  __device__ float Scale(int r, int b) const { return scale[r].Get(b); }
  __device__ float Min(int r, int b) const { return kWithMin ? min[r].Get(b) : 0.0f; }
};

struct Q8Chunk {
  static constexpr int kBlocks = kQuantChunkBlocks, kTerms = 1;
  static constexpr bool kScaled = true, kHasMin = false;
  uint4 w[2][2];
  BlockHalves scale[2];

  __device__ void Load(const DeviceWeights& m, const int (&rows)[2], int chunk, int q) {
    GPU_UNROLL
    for (int r = 0; r < 2; ++r) {
      const size_t at =
          (static_cast<size_t>(rows[r]) * m.QuantChunks() + chunk) * kQuantChunkColumns;
      const auto* base = static_cast<const unsigned char*>(m.values) + at;
      w[r][0] = LoadStream(base + q * 16);
      w[r][1] = LoadStream(base + 64 + q * 16);
      scale[r].Load(m.scales, m, rows[r], chunk);
    }
  }
  // 0x4B000000 | u is the float 2^23 + u: no integer conversion, which runs at quarter rate.
  __device__ static float Value(uint32_t word, int byte) {
    const uint32_t u = (word >> (8 * byte) & 0xffu) ^ 0x80u;
    return __uint_as_float(0x4B000000u | u) - 8388736.0f;
  }
  __device__ static uint32_t Pair(uint32_t word, int byte) {
    return gpu::PackBf16(Value(word, byte), Value(word, byte + 1));
  }
  __device__ Fragments Block(int b, int) const {
    const uint32_t low0 = Word(w[0][b / 2], b % 2 * 2), high0 = Word(w[0][b / 2], b % 2 * 2 + 1);
    const uint32_t low8 = Word(w[1][b / 2], b % 2 * 2), high8 = Word(w[1][b / 2], b % 2 * 2 + 1);
    return {{{Pair(low0, 0), Pair(low8, 0), Pair(low0, 2), Pair(low8, 2)},
             {Pair(high0, 0), Pair(high8, 0), Pair(high0, 2), Pair(high8, 2)}}};
  }
  __device__ float Scale(int r, int b) const { return scale[r].Get(b); }
};

// The lane's part of a block of 32 activations of one row: 16 bytes at columns 8q .. 8q + 7.
__device__ inline void LoadActivations(uint32_t (&x)[4], const __nv_bfloat16* block, int q) {
  const uint4 v = *reinterpret_cast<const uint4*>(block + q * 8);
  x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
}

// acc += block `b` of the weights times a block of activations: the one place in which products
// are summed, so that every kernel that calls it block by block gets the same bits.
template <class Chunk>
__device__ void AddBlock(float (&acc)[4], const Chunk& w, int b, const uint32_t (&x)[4]) {
  if constexpr (!Chunk::kScaled) {
    GPU_UNROLL
    for (int term = 0; term < Chunk::kTerms; ++term) {
      const Fragments f = w.Block(b, term);
      gpu::MmaBf16(acc, f.a[0], x[0], x[1]);
      gpu::MmaBf16(acc, f.a[1], x[2], x[3]);
    }
  } else {
    const Fragments f = w.Block(b, 0);
    float t[4] = {};
    gpu::MmaBf16(t, f.a[0], x[0], x[1]);
    gpu::MmaBf16(t, f.a[1], x[2], x[3]);
    float sum[4] = {};  // Of the block's activations: what a minimum is multiplied with.
    if constexpr (Chunk::kHasMin) {
      const uint32_t ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
      gpu::MmaBf16(sum, ones, x[0], x[1]);
      gpu::MmaBf16(sum, ones, x[2], x[3]);
    }
    GPU_UNROLL
    for (int e = 0; e < 4; ++e) {
      acc[e] = __fmaf_rn(w.Scale(e / 2, b), t[e], acc[e]);
      if constexpr (Chunk::kHasMin) acc[e] = __fmaf_rn(w.Min(e / 2, b), sum[e], acc[e]);
    }
  }
}

}  // namespace vitrine::cuda
