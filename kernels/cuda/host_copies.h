// How results reach the host.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/cuda/staging.h"

namespace vitrine::cuda {

// Small results go through pinned memory: a copy to other memory waits twice. Copies that are
// started have a stream of their own, so that what was enqueued after them computes meanwhile.
class HostCopies {
 public:
  // Copies are enqueued behind what is on `compute`.
  explicit HostCopies(cudaStream_t compute);
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  // Copies, and waits for everything enqueued.
  void Copy(const void* source, void* target, size_t bytes);

  // See Backend::StartCopyToHost.
  void Start(const void* source, void* target, size_t bytes);
  void Finish();

 private:
  struct Started {
    const std::byte* pinned;
    void* target;
    size_t bytes;
  };

  // Null where there is no room.
  std::byte* TakePinned(size_t bytes);

  const cudaStream_t compute_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t is_computed_ = nullptr;
  std::unique_ptr<std::byte, CudaFreeHost> pinned_;  // The first used_ bytes are of started copies.
  size_t used_ = 0;
  std::vector<Started> started_;
};

}  // namespace vitrine::cuda
