// Wrapped PTX: each function has a device body (inline PTX) and a host body (emulation). The
// only file with inline assembly besides launch.h.
#pragma once
#include <cstdint>
#include <cstring>

#include "kernels/cuda/portable.h"
#if GPU_EMULATED
#include "cuda_emulator/async_copy.h"
#include "cuda_emulator/matrix.h"
#endif

namespace vitrine::gpu {

#if GPU_EMULATED

inline void CpAsync16(void* smem, const void* src, bool valid = true, emu::Site s = emu::Here()) {
  emu::AsyncCopy16(smem, src, valid, s);
}
inline void CpAsyncCommit() { emu::AsyncCommit(); }
template <int kKeep>
void CpAsyncWait() {
  emu::AsyncWait(kKeep);
}
inline void LdMatrixX4(uint32_t (&r)[4], const void* row, emu::Site s = emu::Here()) {
  emu::LdMatrixX4(r, row, false, s);
}
inline void LdMatrixX4Trans(uint32_t (&r)[4], const void* row, emu::Site s = emu::Here()) {
  emu::LdMatrixX4(r, row, true, s);
}
inline void MmaBf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                    emu::Site s = emu::Here()) {
  emu::MmaBf16(d, a, b0, b1, s);
}

#else

__device__ inline uint32_t SharedAddress(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
// 16-byte asynchronous copy to shared memory; writes zeros when !valid (src is then not read).
__device__ inline void CpAsync16(void* smem, const void* src, bool valid = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(SharedAddress(smem)), "l"(src),
               "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void CpAsyncCommit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all but the newest kKeep groups of the calling thread.
template <int kKeep>
__device__ inline void CpAsyncWait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kKeep) : "memory");
}
// Four 8x8 matrices of 16-bit elements; lane i supplies row i % 8 of matrix i / 8.
__device__ inline void LdMatrixX4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}
__device__ inline void LdMatrixX4Trans(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}
// d += a(16x16, row) * b(16x8, col), bf16 inputs, f32 accumulators.
__device__ inline void MmaBf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif

// Two floats rounded to bf16, `lo` in the low half: the register format of mma operands.
__device__ inline uint32_t PackBf16(float lo, float hi) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
  uint32_t bits;
  memcpy(&bits, &v, sizeof bits);
  return bits;
}

}  // namespace vitrine::gpu
