// What becomes of CUDA errors after start-up.
#pragma once

#include <cuda_runtime_api.h>

namespace vitrine::cuda {

// Aborts where `error` tells of a bug of ours (a refused launch, a bad argument). Everything else
// is a device that is lost to this process, since such errors stay: the first is kept for
// DeviceFault.
void HandleError(cudaError_t error, const char* file, int line);

inline void CheckCuda(cudaError_t error, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
  if (error != cudaSuccess) HandleError(error, file, line);
}

// cudaSuccess while the device works; else why it is lost, and no result since can be trusted. Any
// thread.
cudaError_t DeviceFault();

}  // namespace vitrine::cuda
