// What becomes of CUDA errors after start-up.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/check.h"

namespace vitrine::cuda {

// Aborts unless `error` is cudaSuccess: a refused launch is our bug, anything else a dead device,
// and neither leaves results that could be served.
inline void CheckCuda(cudaError_t error, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
  if (error != cudaSuccess) internal::CheckFailed(file, line, cudaGetErrorString(error));
}

}  // namespace vitrine::cuda
