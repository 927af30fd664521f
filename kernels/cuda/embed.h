#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/device_weights.h"
#include "kernels/cuda/paged_layout.h"

namespace vitrine::cuda {

// Embed of kernels/embed.h, with the token ids in device memory. Any format of weights; their
// values are exactly those that matrix products use. Rows whose token the table lacks are left
// alone: a table may come in pieces.
struct EmbedParams {
  DeviceWeights table;                 // [tokens, columns with padding]
  int first_token = 0;                 // Of the table.
  const int32_t* token_ids = nullptr;  // [rows]
  const int32_t* drawn = nullptr;      // As in EmbedArgs, or null.
  float* output = nullptr;             // [rows, columns]
  int rows = 0;
  int columns = 0;
  float scale = 1.0f;
  const float* position_table = nullptr;  // [positions, columns], or null
  DeviceBatch batch;                      // Only read with a position table.
};
void Embed(const EmbedParams& params, cudaStream_t stream);

}  // namespace vitrine::cuda
