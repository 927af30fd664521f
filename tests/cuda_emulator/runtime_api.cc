// The CUDA runtime API under its own names: link the emulator INSTEAD of cudart.
#include <cuda_runtime_api.h>

#include <cstring>
#include <mutex>
#include <utility>

#include "cuda_emulator/device_memory.h"
#include "cuda_emulator/launch.h"
#include "cuda_emulator/options.h"
#include "cuda_emulator/stream.h"

using Lock = std::lock_guard<std::recursive_mutex>;
using vitrine::emu::DeviceFault, vitrine::emu::DeviceMutex, vitrine::emu::SetError;
using vitrine::emu::stats;

namespace {

constexpr size_t kTotalMemory = size_t{1} << 30;

// What a call returns that has waited for `stream`, or would have to.
cudaError_t Waited(cudaStream_t stream) {
  if (DeviceFault() != cudaSuccess) return DeviceFault();
  if (stream != nullptr && stream->capture != nullptr) {
    return SetError(cudaErrorStreamCaptureUnsupported);
  }
  ++stats().synchronizations;
  vitrine::emu::Synchronize(stream);
  return DeviceFault();
}

cudaError_t EnqueueCopy(void* dst, const void* src, size_t bytes, cudaStream_t stream) {
  Lock lock(DeviceMutex());
  if (DeviceFault() != cudaSuccess) return DeviceFault();
  if (!vitrine::emu::IsWithinAllocation(dst, bytes) ||
      !vitrine::emu::IsWithinAllocation(src, bytes)) {
    return SetError(cudaErrorInvalidValue);
  }
  vitrine::emu::Enqueue(stream, [=] {
    const vitrine::emu::DeviceAccess access;
    memcpy(dst, src, bytes);
  });
  return cudaSuccess;
}

}  // namespace

extern "C" {

// ---- memory --------------------------------------------------------------------------------
cudaError_t cudaMalloc(void** p, size_t bytes) {
  Lock lock(DeviceMutex());
  if (DeviceFault() != cudaSuccess) return DeviceFault();
  ++stats().allocations;
  *p = vitrine::emu::AllocateDevice(bytes);
  return *p != nullptr ? cudaSuccess : SetError(cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* p) {
  if (p == nullptr) return cudaSuccess;
  Lock lock(DeviceMutex());
  if (DeviceFault() != cudaSuccess) return DeviceFault();
  ++stats().allocations;
  vitrine::emu::DrainAll();
  return vitrine::emu::FreeAllocation(p) ? cudaSuccess : SetError(cudaErrorInvalidValue);
}
cudaError_t cudaMallocHost(void** p, size_t bytes) {
  Lock lock(DeviceMutex());
  if (DeviceFault() != cudaSuccess) return DeviceFault();
  ++stats().allocations;
  *p = vitrine::emu::AllocatePinned(bytes);
  return *p != nullptr ? cudaSuccess : SetError(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* p) { return cudaFree(p); }
cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (kind == cudaMemcpyHostToDevice) {
    ++stats().uploads;
    stats().uploaded_bytes += bytes;
  }
  return EnqueueCopy(dst, src, bytes, stream);
}
cudaError_t cudaMemcpy(void* dst, const void* src, size_t bytes, cudaMemcpyKind) {
  return EnqueueCopy(dst, src, bytes, nullptr);
}
cudaError_t cudaMemsetAsync(void* dst, int value, size_t bytes, cudaStream_t stream) {
  Lock lock(DeviceMutex());
  if (DeviceFault() != cudaSuccess) return DeviceFault();
  if (!vitrine::emu::IsWithinAllocation(dst, bytes)) return SetError(cudaErrorInvalidValue);
  vitrine::emu::Enqueue(stream, [=] {
    const vitrine::emu::DeviceAccess access;
    memset(dst, value, bytes);
  });
  return cudaSuccess;
}
cudaError_t cudaMemset(void* dst, int value, size_t bytes) {
  return cudaMemsetAsync(dst, value, bytes, nullptr);
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  Lock lock(DeviceMutex());
  if (DeviceFault() != cudaSuccess) return DeviceFault();
  *total_bytes = kTotalMemory;
  *free_bytes = kTotalMemory - std::min(kTotalMemory, vitrine::emu::AllocatedBytes());
  return cudaSuccess;
}

// ---- streams and events --------------------------------------------------------------------
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  Lock lock(DeviceMutex());
  *stream = vitrine::emu::CreateStream();
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreate(stream);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Lock lock(DeviceMutex());
  vitrine::emu::DestroyStream(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Lock lock(DeviceMutex());
  return Waited(stream);
}
cudaError_t cudaDeviceSynchronize() { return cudaStreamSynchronize(nullptr); }
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Lock lock(DeviceMutex());
  vitrine::emu::RecordEvent(event, stream);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Lock lock(DeviceMutex());
  ++stats().synchronizations;
  if (event->stream != nullptr) vitrine::emu::DrainTo(event->stream, event->ticket);
  return DeviceFault();
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  Lock lock(DeviceMutex());
  return vitrine::emu::QueryEvent(event) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  *ms = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Lock lock(DeviceMutex());
  vitrine::emu::WaitEvent(stream, event);
  return cudaSuccess;
}

// ---- graphs --------------------------------------------------------------------------------
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  Lock lock(DeviceMutex());
  if (DeviceFault() != cudaSuccess) return DeviceFault();
  if (stream == nullptr || stream->capture != nullptr) {
    return SetError(cudaErrorStreamCaptureUnsupported);
  }
  stream->capture = new CUgraph_st;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  Lock lock(DeviceMutex());
  *graph = std::exchange(stream->capture, nullptr);
  if (DeviceFault() != cudaSuccess) return DeviceFault();
  return *graph != nullptr ? cudaSuccess : SetError(cudaErrorIllegalState);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  if (DeviceFault() != cudaSuccess) return DeviceFault();
  *exec = new CUgraphExec_st{graph->operations};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  Lock lock(DeviceMutex());
  if (DeviceFault() != cudaSuccess) return DeviceFault();
  ++stats().graph_launches;
  for (const auto& operation : exec->operations) vitrine::emu::Enqueue(stream, operation);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

// ---- device and errors ---------------------------------------------------------------------
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device == 0 ? cudaSuccess : SetError(cudaErrorInvalidDevice);
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = 8;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = 4;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = 163 * 1024;  // sm_80, the smallest target
      return cudaSuccess;
    default:
      return SetError(cudaErrorNotSupported);
  }
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return SetError(cudaErrorInvalidDevice);
  *properties = {};
  strcpy(properties->name, "emulated device");
  properties->major = 8;
  properties->multiProcessorCount = 4;
  properties->totalGlobalMem = kTotalMemory;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return vitrine::emu::TakeLastError(); }
cudaError_t cudaPeekAtLastError() { return vitrine::emu::LastError(); }
const char* cudaGetErrorString(cudaError_t e) {
  switch (e) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    default:
      return "emulated CUDA error";
  }
}
const char* cudaGetErrorName(cudaError_t e) { return cudaGetErrorString(e); }

}  // extern "C"
