// Stands in for cuda_backend.cc in builds without nvcc.
#include "absl/status/status.h"
#include "kernels/cuda/cuda_backend.h"

namespace vitrine::cuda {

absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const BackendOptions& /*options*/) {
  return absl::UnavailableError("no usable CUDA device: this program was built without CUDA");
}

}  // namespace vitrine::cuda
