// Kernel launch: argument and limit checks, then the grid as one stream operation.
#pragma once
#include <driver_types.h>
#include <vector_types.h>

#include <cstddef>
#include <functional>

#include "cuda_emulator/kernel_arguments.h"

namespace vitrine::emu {

struct LaunchRequest {
  const void* kernel;
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
  bool overlap_previous;
};
cudaError_t Submit(const LaunchRequest& request, std::function<void()> body);
void SetDynamicLimit(const void* kernel, size_t bytes);

// What the device has failed with: every call returns it from then on. cudaSuccess: it works.
cudaError_t DeviceFault();
// A new device takes the place of the one that failed, which no real process sees.
void ReplaceDevice();

// The error of cudaGetLastError.
cudaError_t SetError(cudaError_t e);
cudaError_t LastError();
cudaError_t TakeLastError();

}  // namespace vitrine::emu
