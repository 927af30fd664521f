// Exactly sized device arrays for host-side tests.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#include <sanitizer/msan_interface.h>
#define GPU_CHECK_INITIALISED(p, bytes) __msan_check_mem_is_initialized(p, bytes)
#endif
#endif
#ifndef GPU_CHECK_INITIALISED
#define GPU_CHECK_INITIALISED(p, bytes) ((void)0)
#endif

namespace vitrine::gpu {

inline void CheckCuda(cudaError_t e, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
  if (e == cudaSuccess) return;
  fprintf(stderr, "%s:%d: %s\n", file, line, cudaGetErrorString(e));
  exit(3);
}

template <class T>
class DeviceArray {
 public:
  // Contents are garbage under the emulator, so unwritten elements show.
  explicit DeviceArray(size_t size) : size_(size) {
    CheckCuda(cudaMalloc(reinterpret_cast<void**>(&data_), size * sizeof(T)));
  }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) {
    CheckCuda(cudaMemcpy(data_, host.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  size_t size() const { return size_; }
  // MSan: results must not depend on uninitialised memory.
  std::vector<T> ToHost() const {
    std::vector<T> host(size_);
    CheckCuda(cudaDeviceSynchronize());
    CheckCuda(cudaMemcpy(host.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    GPU_CHECK_INITIALISED(host.data(), size_ * sizeof(T));
    return host;
  }

 private:
  T* data_ = nullptr;
  size_t size_;
};

}  // namespace vitrine::gpu
