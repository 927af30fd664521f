// All kernels of one instruction set in one table.
#pragma once

#include "kernels/cpu/activated_mat_mul_simd.h"
#include "kernels/cpu/float_kernels_simd.h"
#include "kernels/cpu/mat_mul_simd.h"
#include "kernels/cpu/paged_attention_simd.h"
#include "kernels/cpu/panel_kernels_simd.h"
#include "kernels/cpu/rms_norm_simd.h"
#include "kernels/cpu/rope_write_kv_simd.h"

namespace vitrine::cpu {

template <class P, template <class> class Format>
constexpr void FillQuantized(KernelTable& table) {
  FillIntegerKernels<P, Format>(table);
  FillFloatKernels<P, QuantizedColumns<P, Format>>(table);
}

template <class S>
constexpr KernelTable MakeKernelTable(const char* name) {
  using P = typename S::Panel;
  KernelTable table;
  table.name = name;
  FillQuantized<P, Q4_0Format>(table);
  FillQuantized<P, Q4_1Format>(table);
  FillQuantized<P, Q8_0Format>(table);
  FillFloatKernels<P, F32Columns<P>>(table);
  FillFloatKernels<P, F16Columns<P>>(table);
  FillFloatKernels<P, Bf16Columns<P>>(table);
  table.rms_norm = RunRmsNorm<S>;
  table.mat_mul = RunMatMul<S>;
  table.activated_mat_mul = RunActivatedMatMul<S>;
  table.rope_write_kv = RunRopeWriteKv<S>;
  table.mat_mul_rope_write_kv = RunMatMulRopeWriteKv<S>;
  table.paged_attention = RunPagedAttention<S>;
  table.quantize = RunQuantize<S>;
  return table;
}

}  // namespace vitrine::cpu
