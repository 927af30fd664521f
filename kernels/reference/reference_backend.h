// The oracle: plain loops with f64 sums and f32 activations in both numerics, on the calling thread
// whatever the options say about threads. Slow on purpose; every other backend is tested against
// it. Its ops are complete when they return.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace vitrine {

std::unique_ptr<Backend> CreateReferenceBackend(const BackendOptions& options);

}  // namespace vitrine
