// What kernel code may call, under CUDA's names: the device built-ins that the toolkit's headers
// do not supply to a host compiler. Types and the host half of fp16/bf16 are the toolkit's own.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "cuda_emulator/atomics.h"
#include "cuda_emulator/block.h"
#include "cuda_emulator/collectives.h"
#include "cuda_emulator/device_variables.h"
#include "cuda_emulator/sanitizer.h"
#include "cuda_emulator/warp_ops.h"

#undef __shared__  // would silently become a per-thread local under a host compiler
#define __shared__ static_assert(false, "write GPU_SHARED(name, type) instead of __shared__");
#undef __cluster_dims__
#define __cluster_dims__(...)
#undef __launch_bounds__
#define __launch_bounds__(...)

// ---- barriers, votes, shuffles -------------------------------------------------------------
inline void __syncthreads(vitrine::emu::Site s = vitrine::emu::Here()) {
  vitrine::emu::BlockBarrier(false, s);
}
inline int __syncthreads_or(int p, vitrine::emu::Site s = vitrine::emu::Here()) {
  return vitrine::emu::BlockBarrier(p != 0, s).any;
}
inline int __syncthreads_and(int p, vitrine::emu::Site s = vitrine::emu::Here()) {
  return vitrine::emu::BlockBarrier(p != 0, s).all;
}
inline int __syncthreads_count(int p, vitrine::emu::Site s = vitrine::emu::Here()) {
  return vitrine::emu::BlockBarrier(p != 0, s).count;
}
inline void __syncwarp(unsigned mask = ~0u, vitrine::emu::Site s = vitrine::emu::Here()) {
  vitrine::emu::WarpBarrier(mask, s);
}

namespace vitrine::emu {
// First lane of the calling lane's segment of `width` lanes.
inline int SegmentBase(int width) { return static_cast<int>(LaneId()) & ~(width - 1); }
}  // namespace vitrine::emu

template <class T>
T __shfl_sync(unsigned mask, T v, int src, int width = 32,
              vitrine::emu::Site s = vitrine::emu::Here()) {
  return vitrine::emu::Shuffle("__shfl_sync", mask, v,
                               vitrine::emu::SegmentBase(width) | (src & (width - 1)), s);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int x, int width = 32,
                  vitrine::emu::Site s = vitrine::emu::Here()) {
  const int lane = static_cast<int>(vitrine::emu::LaneId()), src = lane ^ x;
  const bool inside = src < vitrine::emu::SegmentBase(width) + width;
  return vitrine::emu::Shuffle("__shfl_xor_sync", mask, v, inside ? src : lane, s);
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned d, int width = 32,
                   vitrine::emu::Site s = vitrine::emu::Here()) {
  const int lane = static_cast<int>(vitrine::emu::LaneId()), src = lane + static_cast<int>(d);
  const bool inside = src < vitrine::emu::SegmentBase(width) + width;
  return vitrine::emu::Shuffle("__shfl_down_sync", mask, v, inside ? src : lane, s);
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, unsigned d, int width = 32,
                 vitrine::emu::Site s = vitrine::emu::Here()) {
  const int lane = static_cast<int>(vitrine::emu::LaneId()), src = lane - static_cast<int>(d);
  const bool inside = src >= vitrine::emu::SegmentBase(width);
  return vitrine::emu::Shuffle("__shfl_up_sync", mask, v, inside ? src : lane, s);
}
inline unsigned __ballot_sync(unsigned mask, int p, vitrine::emu::Site s = vitrine::emu::Here()) {
  return vitrine::emu::Ballot("__ballot_sync", mask, p != 0, s);
}
inline int __any_sync(unsigned mask, int p, vitrine::emu::Site s = vitrine::emu::Here()) {
  return vitrine::emu::Ballot("__any_sync", mask, p != 0, s) != 0;
}
inline int __all_sync(unsigned mask, int p, vitrine::emu::Site s = vitrine::emu::Here()) {
  return vitrine::emu::Ballot("__all_sync", mask, p == 0, s) == 0;
}
inline unsigned __activemask() { return vitrine::emu::LiveMask(); }

namespace vitrine::emu {
struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};
}  // namespace vitrine::emu
inline unsigned __reduce_add_sync(unsigned mask, unsigned v,
                                  vitrine::emu::Site s = vitrine::emu::Here()) {
  return vitrine::emu::Reduce<vitrine::emu::Add>("__reduce_add_sync", mask, v, s);
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned v,
                                  vitrine::emu::Site s = vitrine::emu::Here()) {
  return vitrine::emu::Reduce<vitrine::emu::Max>("__reduce_max_sync", mask, v, s);
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned v,
                                  vitrine::emu::Site s = vitrine::emu::Here()) {
  return vitrine::emu::Reduce<vitrine::emu::Min>("__reduce_min_sync", mask, v, s);
}

// ---- atomics and fences --------------------------------------------------------------------
template <class T>
T atomicAdd(T* p, std::type_identity_t<T> v) {
  return vitrine::emu::AtomicUpdate(p, [v](T old) { return T(old + v); });
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> v) {
  return vitrine::emu::AtomicUpdate(p, [v](T old) { return old > v ? old : v; });
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> v) {
  return vitrine::emu::AtomicUpdate(p, [v](T old) { return old < v ? old : v; });
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> v) {
  return vitrine::emu::AtomicUpdate(p, [v](T) { return v; });
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> v) {
  return vitrine::emu::AtomicUpdate(p, [expected, v](T old) { return old == expected ? v : old; });
}
inline unsigned atomicInc(unsigned* p, unsigned limit) {
  return vitrine::emu::AtomicUpdate(p,
                                    [limit](unsigned old) { return old >= limit ? 0 : old + 1; });
}
inline void __threadfence() { vitrine::emu::Fence(); }
inline void __threadfence_block() { vitrine::emu::Fence(); }
inline void __nanosleep(unsigned) { vitrine::emu::Yield(); }
inline void __trap() { vitrine::emu::Fail("__trap()"); }

// ---- cached loads and stores ---------------------------------------------------------------
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, T v) {
  *p = v;
}
template <class T>
void __stcg(T* p, T v) {
  *p = v;
}

// ---- arithmetic ----------------------------------------------------------------------------
template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  return b < a ? b : a;
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  return a < b ? b : a;
}
namespace vitrine::emu {
inline float Defined(float x) {
  EMU_MSAN_CHECK(x);
  return x;
}
}  // namespace vitrine::emu
inline float __expf(float x) { return std::exp(vitrine::emu::Defined(x)); }
inline float __logf(float x) { return std::log(vitrine::emu::Defined(x)); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(vitrine::emu::Defined(x)); }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x != 0 ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
