// One step as a list of phases that all workers run through, with barriers between them.
#pragma once

#include <optional>
#include <variant>

#include "kernels/activated_mat_mul.h"
#include "kernels/adjust_logits.h"
#include "kernels/attention_reduce.h"
#include "kernels/attention_rows.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/kv_pages.h"
#include "kernels/cpu/packed_panels.h"
#include "kernels/cpu/row_buffer.h"
#include "kernels/embed.h"
#include "kernels/gather_rows.h"
#include "kernels/layer_norm.h"
#include "kernels/logprobs.h"
#include "kernels/mat_mul.h"
#include "kernels/pack_rows.h"
#include "kernels/paged_attention.h"
#include "kernels/rms_norm.h"
#include "kernels/rms_norm_add.h"
#include "kernels/rope_write_kv.h"
#include "kernels/sample.h"
#include "kernels/scatter_add.h"

namespace vitrine::cpu {

struct EmbedPhase {
  EmbedArgs args;
};

struct GatherRowsPhase {
  GatherRowsArgs args;
};

struct ScatterAddPhase {
  ScatterAddArgs args;
};

// An op that fills a row buffer from rows of its own.
template <class Args>
struct RowPhase {
  Args args;
  bool is_private = false;  // Every worker fills its own rows; no barrier follows.
};
using RmsNormPhase = RowPhase<RmsNormArgs>;
using LayerNormPhase = RowPhase<LayerNormArgs>;
using PackRowsPhase = RowPhase<PackRowsArgs>;

struct RmsNormAddPhase {
  RmsNormAddArgs args;
};

struct MatMulPhase {
  MatMulArgs args;
  bool private_input = false;
};

struct ActivatedMatMulPhase {
  ActivatedMatMulArgs args;
  bool private_input = false;
};

struct RopeWriteKvPhase {
  RopeWriteKvArgs args;
  const RowPlace* places = nullptr;  // [rows]
};

struct MatMulRopeWriteKvPhase {
  MatMulRopeWriteKvArgs args;
  const RowPlace* places = nullptr;  // [rows]
  bool private_input = false;
};

struct PagedAttentionPhase {
  PagedAttentionArgs args;
  AttentionPlan* plan = nullptr;
  bool quantizes_later = false;  // Heads do not end at blocks of 32: a QuantizePhase follows.
};

// Quantises the f32 rows of a buffer.
struct QuantizePhase {
  const CpuRowBuffer* rows = nullptr;
  int count = 0;
};

struct AttentionRowsPhase {
  AttentionRowsArgs args;
  // Of each of the rows, by the worker that has just computed it.
  std::optional<AttentionReduceArgs> reduction = {};
};

struct AttentionReducePhase {
  AttentionReduceArgs args;
};

struct AdjustLogitsPhase {
  AdjustLogitsArgs args;
};

struct SamplePhase {
  SampleArgs args;
};

struct LogprobsPhase {
  LogprobsArgs args;
};

using Phase = std::variant<EmbedPhase, GatherRowsPhase, RmsNormPhase, LayerNormPhase, PackRowsPhase,
                           RmsNormAddPhase, MatMulPhase, ActivatedMatMulPhase, RopeWriteKvPhase,
                           MatMulRopeWriteKvPhase, PagedAttentionPhase, QuantizePhase,
                           AttentionRowsPhase, AttentionReducePhase, AdjustLogitsPhase, SamplePhase,
                           LogprobsPhase, ScatterAddPhase>;

inline const CpuMatrix& AsMatrix(const PackedMatrix* matrix) {
  return static_cast<const CpuMatrix&>(*matrix);
}
inline const CpuKvStorage& AsKv(const KvStorage* kv) {
  return static_cast<const CpuKvStorage&>(*kv);
}
inline const CpuRowBuffer& AsRows(const RowBuffer* rows) {
  return static_cast<const CpuRowBuffer&>(*rows);
}

}  // namespace vitrine::cpu
