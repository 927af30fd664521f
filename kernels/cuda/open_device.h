#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "absl/status/statusor.h"

namespace vitrine::cuda {

struct OpenedDevice {
  std::string description;  // "cuda: NAME, compute capability 9.0, ..."
  cudaStream_t stream = nullptr;
};

// The first device, with a stream of its own. UNAVAILABLE with the reason where there is none that
// this backend can use; without a driver that takes a fraction of a millisecond.
absl::StatusOr<OpenedDevice> OpenDevice();

}  // namespace vitrine::cuda
