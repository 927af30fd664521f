#include "kernels/cuda/cuda_check.h"

#include <atomic>

#include "kernels/check.h"

namespace vitrine::cuda {
namespace {

// Of the process, as is the CUDA context that it ends.
std::atomic<cudaError_t> device_fault = cudaSuccess;

// What CUDA reports for calls that were wrong, whatever state the device is in.
bool IsBug(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidSymbol:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorIllegalState:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorCapturedEvent:
    case cudaErrorStreamCaptureWrongThread:
      return true;
    default:
      return false;
  }
}

}  // namespace

void HandleError(cudaError_t error, const char* file, int line) {
  // What follows a fault may be refused for any reason.
  if (DeviceFault() != cudaSuccess) return;
  if (IsBug(error)) internal::CheckFailed(file, line, cudaGetErrorString(error));
  cudaError_t none = cudaSuccess;
  device_fault.compare_exchange_strong(none, error);
}

cudaError_t DeviceFault() { return device_fault; }

}  // namespace vitrine::cuda
