// The backend of NVIDIA devices from compute capability 8.0.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace vitrine::cuda {

// Device 0 of those that CUDA_VISIBLE_DEVICES leaves. UNAVAILABLE, "no usable CUDA device", where
// the build has no kernels, the machine no driver or no device, or the device is too old.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const BackendOptions& options);

}  // namespace vitrine::cuda
