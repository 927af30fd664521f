// Kernel launch: argument and limit checks, then the grid as one stream operation.
#pragma once
#include <driver_types.h>
#include <vector_types.h>

#include <cstddef>
#include <functional>
#include <type_traits>

namespace vitrine::emu {

struct LaunchRequest {
  const void* kernel;
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
  bool overlap_previous;
};
cudaError_t Submit(const LaunchRequest& request, std::function<void()> body);
// Throws when argument `index` points to memory no cudaMalloc or cudaMallocHost returned.
void CheckPointer(const void* p, int index);
void SetDynamicLimit(const void* kernel, size_t bytes);

template <class T>
void CheckArgument(const T& v, int index) {
  if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>) {
    CheckPointer(v, index);
  }
}

// What the device has failed with: every call returns it from then on. cudaSuccess: it works.
cudaError_t DeviceFault();
// A new device takes the place of the one that failed, which no real process sees.
void ReplaceDevice();

// The error of cudaGetLastError.
cudaError_t SetError(cudaError_t e);
cudaError_t LastError();
cudaError_t TakeLastError();

}  // namespace vitrine::emu
