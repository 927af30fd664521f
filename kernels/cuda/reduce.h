// Warp and block reductions: the only place with shuffle sequences. The emulator does each warp
// reduction as one collective with the same order of operations (checked in its test).
#pragma once
#include <cmath>

#include "kernels/cuda/portable.h"

namespace vitrine::gpu {

struct Sum {
  template <class T>
  __device__ static T Apply(T a, T b) {
    return a + b;
  }
#if GPU_EMULATED
  template <class T>
  T operator()(T a, T b) const {
    return Apply(a, b);
  }
#endif
};
struct Max {
  template <class T>
  __device__ static T Apply(T a, T b) {
    return a < b ? b : a;
  }
#if GPU_EMULATED
  template <class T>
  T operator()(T a, T b) const {
    return Apply(a, b);
  }
#endif
};

// The shuffle sequence itself. Use WarpReduce; this form is for the test of the two.
template <class Op, class T>
__device__ T WarpReduceByShuffles(T v) {
  GPU_UNROLL
  for (int distance = 16; distance > 0; distance /= 2) {
    v = Op::Apply(v, __shfl_xor_sync(0xffffffffu, v, distance));
  }
  return v;
}

#if GPU_EMULATED
template <class Op, class T>
T WarpReduce(T v, emu::Site s = emu::Here()) {
  return emu::Reduce<Op>("WarpReduce", 0xffffffffu, v, s);
}
template <class T>
T WarpSum(T v, emu::Site s = emu::Here()) {
  return WarpReduce<Sum>(v, s);
}
template <class T>
T WarpMax(T v, emu::Site s = emu::Here()) {
  return WarpReduce<Max>(v, s);
}
#else
// All 32 lanes must call; every lane receives the result.
template <class Op, class T>
__device__ T WarpReduce(T v) {
  return WarpReduceByShuffles<Op>(v);
}
template <class T>
__device__ T WarpSum(T v) {
  return WarpReduce<Sum>(v);
}
template <class T>
__device__ T WarpMax(T v) {
  return WarpReduce<Max>(v);
}
#endif

// Reductions over the four lanes that hold one row of an mma accumulator.
__device__ inline float QuadMax(float v) {
  v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
  return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}
__device__ inline float QuadSum(float v) {
  v += __shfl_xor_sync(0xffffffffu, v, 1);
  return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

// Sum of the calling lane's and all lower lanes' values. All 32 lanes must call.
template <class T>
__device__ T WarpInclusiveSum(T v) {
  const unsigned lane = threadIdx.x % 32;
  for (unsigned distance = 1; distance < 32; distance *= 2) {
    const T other = __shfl_up_sync(0xffffffffu, v, distance);
    if (lane >= distance) v += other;
  }
  return v;
}

// All kThreads threads of a one-dimensional block must call; every thread receives the result.
// `scratch` is shared memory; it may be reused after the call without a further barrier.
template <class Op, int kThreads, class T>
__device__ T BlockReduce(T v, T (&scratch)[kThreads / 32]) {
  constexpr int kWarps = kThreads / 32;
  v = WarpReduce<Op>(v);
  if constexpr (kWarps == 1) return v;
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
  __syncthreads();
  T total = scratch[0];
  GPU_UNROLL
  for (int w = 1; w < kWarps; ++w) total = Op::Apply(total, scratch[w]);
  __syncthreads();  // before the caller reuses the scratch
  return total;
}
template <int kThreads, class T>
__device__ T BlockSum(T v, T (&scratch)[kThreads / 32]) {
  return BlockReduce<Sum, kThreads>(v, scratch);
}
template <int kThreads, class T>
__device__ T BlockMax(T v, T (&scratch)[kThreads / 32]) {
  return BlockReduce<Max, kThreads>(v, scratch);
}

}  // namespace vitrine::gpu
