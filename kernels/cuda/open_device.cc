#include "kernels/cuda/open_device.h"

#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace vitrine::cuda {
namespace {

constexpr int kLeastComputeCapability = 8;

absl::Status NoDevice(std::string_view why) {
  return absl::UnavailableError(absl::StrCat("no usable CUDA device: ", std::string(why)));
}

}  // namespace

absl::StatusOr<OpenedDevice> OpenDevice() {
  int devices = 0;  // Stays 0 where the driver is missing or too old.
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess || devices == 0) {
    cudaGetLastError();
    return NoDevice(error == cudaSuccess ? "the driver reports none" : cudaGetErrorString(error));
  }
  cudaDeviceProp device = {};
  if (const cudaError_t e = cudaGetDeviceProperties(&device, 0); e != cudaSuccess) {
    return NoDevice(cudaGetErrorString(e));
  }
  const std::string name = device.name;
  if (device.major < kLeastComputeCapability) {
    return NoDevice(absl::StrCat(name, " has compute capability ", device.major, ".", device.minor,
                                 ", at least ", kLeastComputeCapability, ".0 is needed"));
  }
  // The first call that needs the device itself: others may hold it, or its memory may be full.
  cudaStream_t stream = nullptr;
  if (const cudaError_t e = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      e != cudaSuccess) {
    cudaGetLastError();
    return NoDevice(absl::StrCat(name, ": ", cudaGetErrorString(e)));
  }
  return OpenedDevice{
      .description = absl::StrCat("cuda: ", name, ", compute capability ", device.major, ".",
                                  device.minor, ", ", device.multiProcessorCount,
                                  " multiprocessors, ", device.totalGlobalMem >> 20, " MiB"),
      .stream = stream};
}

}  // namespace vitrine::cuda
