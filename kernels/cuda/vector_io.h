// 16-byte loads and stores of eight bf16 values.
#pragma once
#include "kernels/cuda/portable.h"

namespace vitrine::gpu {

inline constexpr int kBf16PerVector = 8;

__device__ inline void LoadBf16x8(float (&f)[8], const __nv_bfloat16* src) {
  const uint4 raw = *reinterpret_cast<const uint4*>(src);
  const auto* pairs = reinterpret_cast<const __nv_bfloat162*>(&raw);
  GPU_UNROLL
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __bfloat1622float2(pairs[i]);
    f[2 * i] = pair.x;
    f[2 * i + 1] = pair.y;
  }
}

__device__ inline void StoreBf16x8(__nv_bfloat16* dst, const float (&f)[8]) {
  uint4 raw;
  auto* pairs = reinterpret_cast<__nv_bfloat162*>(&raw);
  GPU_UNROLL
  for (int i = 0; i < 4; ++i) pairs[i] = __floats2bfloat162_rn(f[2 * i], f[2 * i + 1]);
  *reinterpret_cast<uint4*>(dst) = raw;
}

}  // namespace vitrine::gpu
