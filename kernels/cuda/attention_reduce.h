#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/attention_reduce.h"

namespace vitrine::cuda {

// AttentionReduce of kernels/attention_reduce.h; pointers that are null there are null here.
struct AttentionReduceParams {
  const float* input = nullptr;  // [count, members, key_columns]
  int count = 0;
  int key_columns = 0;
  int members = 1;
  AttentionCombine combine = AttentionCombine::kMean;
  const AttentionRowKeys* rows = nullptr;  // [count]
  const float* log_sum_exp = nullptr;      // [count, members]
  float* combined = nullptr;               // [count, key_columns], never null
  float* stats = nullptr;                  // [count, kAttentionStats]

  int top_k = 0;
  const KeyRange* top_ranges = nullptr;  // [top_range_count]
  int top_range_count = 0;               // 0: all keys
  uint32_t* top_keys = nullptr;          // [count, top_k]
  float* top_values = nullptr;           // [count, top_k]
  float* tail_mass = nullptr;            // [count]

  const KeyRange* span_ranges = nullptr;
  const int32_t* span_begin = nullptr;  // [spans + 1]
  int spans = 0;
  float* span_mass = nullptr;  // [count, spans]

  // Moves everything that is counted by rows, but `combined`, behind the first `skipped` rows.
  void Skip(int skipped);
};
void AttentionReduce(const AttentionReduceParams& params, cudaStream_t stream);

}  // namespace vitrine::cuda
