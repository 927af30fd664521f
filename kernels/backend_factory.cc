#include "kernels/backend_factory.h"

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/reference/reference_backend.h"

namespace vitrine {
namespace {

constexpr int kMaxThreads = 1024;

absl::StatusOr<std::unique_ptr<Backend>> CreateAuto(const BackendOptions& options) {
  absl::StatusOr<std::unique_ptr<Backend>> device = cuda::CreateCudaBackend(options);
  return absl::IsUnavailable(device.status()) ? CreateCpuBackend(options) : std::move(device);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(std::string_view name,
                                                       const BackendOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads must be within 0 and ", kMaxThreads, ", not ", options.threads));
  }
  if (name == "auto") return CreateAuto(options);
  if (name == "cpu") return CreateCpuBackend(options);
  if (name == "cuda") return cuda::CreateCudaBackend(options);
  if (name == "reference") return CreateReferenceBackend(options);
  return absl::InvalidArgumentError(absl::StrCat(
      "backend must be auto, cpu, cuda or reference, not \"", std::string(name), "\""));
}

}  // namespace vitrine
