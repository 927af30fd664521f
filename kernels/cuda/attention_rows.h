#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/attention_rows.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/paged_layout.h"

namespace vitrine::cuda {

// AttentionRows of kernels/attention_rows.h. Kv: type of the cache, float or __nv_bfloat16.
template <class Kv>
struct AttentionRowsParams {
  const float* q = nullptr;            // [slices, row_capacity, heads, head_dim]
  const float* log_sum_exp = nullptr;  // [slices, row_capacity, heads]
  int row_capacity = 0;
  int first_layer = 0;  // Of the first slice.
  DeviceBatch batch;
  PagedKv<const Kv> kv;  // Of layer 0.
  size_t layer_elements = 0;
  int heads = 0;
  ScoreRule rule;                       // But for the window.
  const int32_t* windows = nullptr;     // [layers], or null
  const float* alibi_slopes = nullptr;  // [heads], or null
  bool rounds_queries = false;          // To bf16, as the matrix kernels do.
  const AttentionItem* items = nullptr;
  int item_count = 0;
  AttentionStage stage = AttentionStage::kWeights;
  int key_columns = 0;
  float* output = nullptr;  // [item_count, key_columns]
};
template <class Kv>
void AttentionRows(const AttentionRowsParams<Kv>& params, cudaStream_t stream);

}  // namespace vitrine::cuda
