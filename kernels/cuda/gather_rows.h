#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace vitrine::cuda {

// GatherRows of kernels/gather_rows.h, with the row ids in device memory.
struct GatherRowsParams {
  const float* input = nullptr;      // [any, columns]
  const int32_t* row_ids = nullptr;  // [rows]
  float* output = nullptr;           // [rows, columns]
  int rows = 0;
  int columns = 0;
};
void GatherRows(const GatherRowsParams& params, cudaStream_t stream);

}  // namespace vitrine::cuda
