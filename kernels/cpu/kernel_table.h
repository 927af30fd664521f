// The function table of one instruction set, and what its functions get to work with.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/phase.h"
#include "kernels/cpu/row_buffer.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/vocabulary_row.h"

namespace vitrine::cpu {

inline constexpr int kDTypes = 15;
inline constexpr int kMaxHeadDim = 256;
inline constexpr int kMaxUnitPanels = kMaxHeadDim / kPanelRows;  // A head is the largest unit.

// Blocks of rows that are still to be quantised.
struct alignas(64) PendingBlocks {
  float values[kTileRows][kBlockColumns];
  ActivationRow* rows[kTileRows];
  ActivationRow nobody;  // Takes what fills up the last group.
};

// Private memory of a worker.
struct alignas(64) WorkerScratch {
  float products[kMaxUnitPanels][kTileRows * kPanelRows];
  float columns[kBlockColumns * kPanelRows];  // A decoded block.
  float head[kMaxHeadDim];
  PendingBlocks pending;
  AttentionScratch attention;
  VocabularyScratch vocabulary;
};

// Writes products[row][lane] for `rows` rows of the tile, 1 to kTileRows; more rows of the tile may
// be read and overwritten.
using IntegerKernel = void (*)(const uint8_t* panel, int blocks, const ActivationBlock* tile,
                               int rows, float* products);
// The same for f32 rows that are `stride` apart; up to 7 more rows may be read and overwritten.
using FloatKernel = void (*)(const uint8_t* panel, int blocks, const float* rows, size_t stride,
                             int count, float* products);
// Writes values[column][lane] of the 32 columns of a block.
using DecodeBlockKernel = void (*)(const uint8_t* panel, int block, float* values);

struct WorkerContext;

struct KernelTable {
  const char* name = nullptr;
  std::array<std::array<IntegerKernel, kTileRows + 1>, kDTypes> integer_kernels = {};
  // The same for two panels that follow each other in memory, of any number of rows; writes the
  // products of the second kTileRows * kPanelRows floats behind those of the first. Null where two
  // calls are as fast.
  std::array<IntegerKernel, kDTypes> pair_kernels = {};
  std::array<FloatKernel, kDTypes> float_kernels = {};
  std::array<DecodeBlockKernel, kDTypes> decode_block = {};

  // What every worker does before and after the phases of a step; null: nothing.
  void (*enter_step)() = nullptr;
  void (*leave_step)() = nullptr;

  // Integer dot products from registers, as many as `loops` asks for; the operations done. Null:
  // the instruction set has none worth measuring.
  double (*integer_burst)(int64_t loops) = nullptr;

  void (*rms_norm)(const WorkerContext&, const RmsNormPhase&) = nullptr;
  void (*mat_mul)(const WorkerContext&, const MatMulPhase&) = nullptr;
  void (*activated_mat_mul)(const WorkerContext&, const ActivatedMatMulPhase&) = nullptr;
  void (*rope_write_kv)(const WorkerContext&, const RopeWriteKvPhase&) = nullptr;
  void (*mat_mul_rope_write_kv)(const WorkerContext&, const MatMulRopeWriteKvPhase&) = nullptr;
  void (*paged_attention)(const WorkerContext&, const PagedAttentionPhase&) = nullptr;
  void (*quantize)(const WorkerContext&, const QuantizePhase&) = nullptr;
  void (*layer_norm)(const WorkerContext&, const LayerNormPhase&) = nullptr;
  void (*pack_rows)(const WorkerContext&, const PackRowsPhase&) = nullptr;
  void (*rms_norm_add)(const WorkerContext&, const RmsNormAddPhase&) = nullptr;
  void (*attention_rows)(const WorkerContext&, const AttentionRowsPhase&) = nullptr;
  // One row of an AttentionReduce, after its members have become one.
  void (*reduce_combined_row)(const AttentionReduceArgs&, size_t index, const float* row,
                              float log_sum_exp) = nullptr;
  // One row of Sample and of Logprobs.
  int32_t (*draw_token)(std::span<const float> logits, const SampleRow&,
                        VocabularyScratch&) = nullptr;
  LogprobsResult (*row_logprobs)(const LogprobsArgs&, size_t index, VocabularyScratch&) = nullptr;
};

struct WorkerContext {
  ThreadPool& pool;
  const KernelTable& kernels;
  int worker;
  WorkerScratch& scratch;
};

// Null where the binary was built without this instruction set.
const KernelTable* AmxKernels();
const KernelTable* Avx512Kernels();
const KernelTable* AvxVnniKernels();
const KernelTable* Avx2Kernels();
const KernelTable* PortableKernels();

}  // namespace vitrine::cpu
