// In place of the cpu backend where only the cuda backend and the oracle are built.
#include <memory>

#include "absl/status/status.h"
#include "kernels/cpu/cpu_backend.h"

namespace vitrine {

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const BackendOptions& /*options*/) {
  return absl::UnavailableError("no cpu backend in this build");
}

}  // namespace vitrine
