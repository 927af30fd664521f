// All kernels of one instruction set in one table; the matrix kernels are compiled apart.
#pragma once

#include "kernels/cpu/activated_mat_mul_simd.h"
#include "kernels/cpu/attention_reduce_simd.h"
#include "kernels/cpu/attention_rows_simd.h"
#include "kernels/cpu/calibration_simd.h"
#include "kernels/cpu/layer_norm_simd.h"
#include "kernels/cpu/logprobs_simd.h"
#include "kernels/cpu/mat_mul_simd.h"
#include "kernels/cpu/pack_rows_simd.h"
#include "kernels/cpu/paged_attention_simd.h"
#include "kernels/cpu/rms_norm_add_simd.h"
#include "kernels/cpu/rms_norm_simd.h"
#include "kernels/cpu/rope_write_kv_simd.h"
#include "kernels/cpu/sample_simd.h"

namespace vitrine::cpu {

template <class S>
KernelTable MakeKernelTable(const char* name, void (*fill_matrix_kernels)(KernelTable&)) {
  KernelTable table;
  table.name = name;
  fill_matrix_kernels(table);
  table.integer_burst = RunIntegerProducts<typename S::Panel>;
  table.rms_norm = RunRmsNorm<S>;
  table.mat_mul = RunMatMul<S>;
  table.activated_mat_mul = RunActivatedMatMul<S>;
  table.rope_write_kv = RunRopeWriteKv<S>;
  table.mat_mul_rope_write_kv = RunMatMulRopeWriteKv<S>;
  table.paged_attention = RunPagedAttention<S>;
  table.quantize = RunQuantize<S>;
  table.layer_norm = RunLayerNorm<S>;
  table.pack_rows = RunPackRows<S>;
  table.rms_norm_add = RunRmsNormAdd<S>;
  table.attention_rows = RunAttentionRows<S>;
  table.reduce_combined_row = ReduceCombinedRow<S>;
  table.draw_token = DrawToken<S>;
  table.row_logprobs = RowLogprobs<S>;
  return table;
}

}  // namespace vitrine::cpu
