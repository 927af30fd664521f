// Small kernels in the style of the real ones, each with faults that can be planted one at a
// time. The fault matrix test runs them and checks which mode notices which fault.
#pragma once
#include <cmath>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/reduce.h"

namespace vitrine::faults {

// 16-byte loads and stores of eight bf16 values.
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

enum class Fault {
  kNone,
  kMissingBarrier,       // shared partials read without __syncthreads
  kUninitialisedShared,  // reads shared slots that no warp wrote
  kOutOfBoundsGlobal,    // reads past the end of an allocation or of the context
  kOutOfBoundsShared,    // writes one past a static shared array
  kDivergentBarrier,     // __syncthreads in both halves of a branch
  kMisalignedVector,     // 16-byte access at a 4-byte offset
  kMissingAsyncWait,     // tile used before its cp.async group is complete
  kOverwriteTile,        // next tile loaded while others still read this one
  kMissingSyncwarp,      // warp-level exchange that relies on lock-step
  kNonAtomicUpdate,      // x = x + 1 on shared data from many threads
  kWrongMask,            // shuffle mask names a lane that takes another path
  kDynamicOverflow,      // uses more dynamic shared memory than was asked for
};

// ---- RMSNorm -------------------------------------------------------------------------------
template <Fault kFault, int kThreads>
__device__ float RowSum(float sum) {
  constexpr int kWarps = kThreads / 32;
  constexpr int kSlots = kFault == Fault::kUninitialisedShared ? 2 * kWarps : kWarps;
  GPU_SHARED(partial, float[kSlots]);
  GPU_SHARED(total, float);
  sum = gpu::WarpSum(sum);
  const int slot = threadIdx.x / 32 + (kFault == Fault::kOutOfBoundsShared ? 1 : 0);
  if (threadIdx.x % 32 == 0) partial[slot] = sum;
  if constexpr (kFault == Fault::kDivergentBarrier) {
    if (threadIdx.x < kThreads / 2) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  } else if constexpr (kFault != Fault::kMissingBarrier) {
    __syncthreads();
  }
  if (threadIdx.x < 32) {
    const float t = gpu::WarpSum(threadIdx.x < kSlots ? partial[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0) total = t;
  }
  __syncthreads();
  return total;
}

// y[row] = x[row] / rms(x[row]); one block per row.
template <Fault kFault, int kThreads>
__global__ void NormKernel(const __nv_bfloat16* x, __nv_bfloat16* y, int hidden) {
  const __nv_bfloat16* row = x + size_t{blockIdx.x} * hidden;
  const int vectors = hidden / 8;
  const int end = kFault == Fault::kOutOfBoundsGlobal ? vectors + 1 : vectors;
  float f[8], sum = 0;
  for (int v = threadIdx.x; v < end; v += kThreads) {
    int at = v * 8;
    if (kFault == Fault::kMisalignedVector && v != vectors - 1) at += 2;
    LoadBf16x8(f, row + at);
    for (int i = 0; i < 8; ++i) sum += f[i] * f[i];
  }
  const float scale = rsqrtf(RowSum<kFault, kThreads>(sum) / hidden);
  for (int v = threadIdx.x; v < vectors; v += kThreads) {
    LoadBf16x8(f, row + v * 8);
    for (int i = 0; i < 8; ++i) f[i] *= scale;
    StoreBf16x8(y + size_t{blockIdx.x} * hidden + v * 8, f);
  }
}

// ---- paged decode attention ----------------------------------------------------------------
// One block per sequence, one head of 64 dimensions, page size 16; warps stride over the keys
// and merge through shared memory. Negative table entries must never be used.
template <Fault kFault, int kWarps>
__global__ void DecodeKernel(const float* q, const float* k, const float* v, const int* table,
                             const int* context, float* out, int max_pages) {
  constexpr int kDim = 64, kPage = 16;
  GPU_SHARED(s_max, float[kWarps]);
  GPU_SHARED(s_sum, float[kWarps]);
  GPU_SHARED(s_acc, float[kWarps][kDim]);
  const int seq = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int end = context[seq] + (kFault == Fault::kOutOfBoundsGlobal ? 3 : 0);
  float top = -INFINITY, sum = 0, acc[2] = {0, 0};
  for (int t = warp; t < end; t += kWarps) {
    const int page = table[seq * max_pages + t / kPage];
    const long at = (static_cast<long>(page) * kPage + t % kPage) * kDim + lane * 2;
    const float* qs = q + seq * kDim + lane * 2;
    const float score = gpu::WarpSum(qs[0] * k[at] + qs[1] * k[at + 1]);
    const float next = fmaxf(top, score), keep = __expf(top - next), p = __expf(score - next);
    top = next;
    sum = sum * keep + p;
    for (int i = 0; i < 2; ++i) acc[i] = acc[i] * keep + p * v[at + i];
  }
  // A warp that saw no key must still say so, or its slots are garbage.
  if (kFault != Fault::kUninitialisedShared || warp < end) {
    if (lane == 0) s_max[warp] = top, s_sum[warp] = sum;
    for (int i = 0; i < 2; ++i) s_acc[warp][lane * 2 + i] = acc[i];
  }
  if (kFault != Fault::kMissingBarrier) __syncthreads();
  if (threadIdx.x >= kDim) return;
  top = -INFINITY, sum = 0;
  float value = 0;
  for (int w = 0; w < kWarps; ++w) top = fmaxf(top, s_max[w]);
  for (int w = 0; w < kWarps; ++w) {
    const float f = __expf(s_max[w] - top);
    sum += f * s_sum[w];
    value += f * s_acc[w][threadIdx.x];
  }
  out[seq * kDim + threadIdx.x] = value / sum;
}

// ---- double-buffered tensor-core product ---------------------------------------------------
struct TileBuffers {
  static constexpr int kDepth = 32, kStride = kDepth + 8;  // padded against bank conflicts
  __nv_bfloat16 a[2][64][kStride];
  __nv_bfloat16 b[2][64][kStride];
};

__device__ inline void LoadTile(__nv_bfloat16 (*tile)[TileBuffers::kStride],
                                const __nv_bfloat16* src, int depth, int k0) {
  for (int i = threadIdx.x; i < 64 * 4; i += 128) {
    gpu::CpAsync16(&tile[i / 4][i % 4 * 8], src + i / 4 * depth + k0 + i % 4 * 8);
  }
}

// out[64][64] = a[64][depth] . b[64][depth]^T with one block of 4 warps, 16 rows of a each.
template <Fault kFault>
__global__ void ProductKernel(const __nv_bfloat16* a, const __nv_bfloat16* b, float* out,
                              int depth) {
  GPU_SHARED(s, TileBuffers);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, tiles = depth / TileBuffers::kDepth;
  float acc[8][4] = {};
  LoadTile(s.a[0], a, depth, 0);
  LoadTile(s.b[0], b, depth, 0);
  gpu::CpAsyncCommit();
  for (int t = 0; t < tiles; ++t) {
    if (t + 1 < tiles) {
      LoadTile(s.a[(t + 1) % 2], a, depth, (t + 1) * TileBuffers::kDepth);
      LoadTile(s.b[(t + 1) % 2], b, depth, (t + 1) * TileBuffers::kDepth);
    }
    gpu::CpAsyncCommit();  // possibly empty, so that the count below always fits
    gpu::CpAsyncWait<kFault == Fault::kMissingAsyncWait ? 2 : 1>();
    __syncthreads();
    for (int i = 0; i < TileBuffers::kDepth / 16; ++i) {
      uint32_t fa[4], fb[4];
      gpu::LdMatrixX4(fa, &s.a[t % 2][warp * 16 + lane % 16][i * 16 + lane / 16 * 8]);
      for (int n = 0; n < 4; ++n) {
        const int row = n * 16 + lane / 16 * 8 + lane % 8;
        gpu::LdMatrixX4(fb, &s.b[t % 2][row][i * 16 + lane / 8 % 2 * 8]);
        gpu::MmaBf16(acc[2 * n], fa, fb[0], fb[1]);
        gpu::MmaBf16(acc[2 * n + 1], fa, fb[2], fb[3]);
      }
    }
    if (kFault != Fault::kOverwriteTile) __syncthreads();  // before this buffer is loaded again
  }
  for (int n = 0; n < 8; ++n) {
    for (int e = 0; e < 4; ++e) {
      const int row = warp * 16 + lane / 4 + e / 2 * 8, col = n * 8 + lane % 4 * 2 + e % 2;
      out[row * 64 + col] = acc[n][e];
    }
  }
}

// ---- small patterns ------------------------------------------------------------------------
template <Fault kFault>
__global__ void ExchangeKernel(const float* in, float* out) {  // reverses each warp's values
  GPU_SHARED(slot, float[8][32]);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  slot[warp][lane] = in[blockIdx.x * blockDim.x + threadIdx.x];
  if (kFault != Fault::kMissingSyncwarp) __syncwarp();
  out[blockIdx.x * blockDim.x + threadIdx.x] = slot[warp][31 - lane];
}

template <Fault kFault>
__global__ void HistogramKernel(const int* in, int n, int* out) {
  GPU_SHARED(bins, int[16]);
  if (threadIdx.x < 16) bins[threadIdx.x] = 0;
  __syncthreads();
  const int step = static_cast<int>(gridDim.x * blockDim.x);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
    if (kFault == Fault::kNonAtomicUpdate) {
      bins[in[i] % 16] = bins[in[i] % 16] + 1;
    } else {
      atomicAdd(&bins[in[i] % 16], 1);
    }
  }
  __syncthreads();
  if (threadIdx.x < 16) atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
}

template <Fault kFault>
__global__ void EvenLanesKernel(const int* in, int* out) {  // sums the even lanes
  int v = in[threadIdx.x];
  if (threadIdx.x % 2 == 0) {
    const unsigned mask = kFault == Fault::kWrongMask ? 0xffffffffu : 0x55555555u;
    for (int o = 16; o > 1; o /= 2) v += __shfl_xor_sync(mask, v, o);
  } else {
    __syncwarp(0xaaaaaaaau);
    v = 0;
  }
  out[threadIdx.x] = v;
}

template <Fault kFault>
__global__ void ReverseKernel(float* out, int n) {
  GPU_DYNAMIC_SHARED(raw);
  float* s = reinterpret_cast<float*>(raw);
  const int end = n + (kFault == Fault::kDynamicOverflow ? 1 : 0);
  for (int i = threadIdx.x; i < end; i += blockDim.x) s[i] = static_cast<float>(i);
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = s[n - 1 - i];
}

// ---- host and inter-block patterns ---------------------------------------------------------
__global__ inline void AddOneKernel(int* p, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] += 1;
}

// Sum with the "last block reduces" pattern.
template <bool kFence>
__global__ void LastBlockSumKernel(const int* in, int* partial, unsigned* ticket, int* out) {
  GPU_SHARED(last, bool);
  const int v = gpu::WarpSum(in[blockIdx.x * 32 + threadIdx.x]);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = v;
    if (kFence) __threadfence();
    last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    if (kFence) __threadfence();
  }
  __syncthreads();
  if (!last) return;
  int s = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += 32) s += partial[i];
  s = gpu::WarpSum(s);
  if (threadIdx.x == 0) *out = s;
}

__global__ inline void SameCellKernel(int* p) {
  if (threadIdx.x == blockIdx.x) *p = 7;  // same value: the result is right, the race is there
}

}  // namespace vitrine::faults
