#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/device_rows.h"

namespace vitrine::cuda {

// PackRows of kernels/pack_rows.h.
struct PackRowsParams {
  const float* input = nullptr;  // [rows, columns]
  DeviceRows output;             // [rows, columns]
  int rows = 0;
  int columns = 0;
};
void PackRows(const PackRowsParams& params, cudaStream_t stream);

}  // namespace vitrine::cuda
