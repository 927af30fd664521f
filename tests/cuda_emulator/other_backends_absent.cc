// In place of the other backends where only the cuda backend is built.
#include <memory>

#include "absl/status/status.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/reference/reference_backend.h"

namespace vitrine {

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const BackendOptions& /*options*/) {
  return absl::UnavailableError("no cpu backend in this build");
}

std::unique_ptr<Backend> CreateReferenceBackend(const BackendOptions& /*options*/) {
  return nullptr;
}

}  // namespace vitrine
