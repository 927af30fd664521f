#include "cuda_emulator/launch.h"

#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cuda_emulator/block.h"
#include "cuda_emulator/device_memory.h"
#include "cuda_emulator/device_variables.h"
#include "cuda_emulator/sanitizer.h"
#include "cuda_emulator/shared_memory.h"
#include "cuda_emulator/stream.h"

namespace vitrine::emu {
namespace {

constexpr size_t kMaxThreads = 1024, kMaxBlockZ = 64;
constexpr unsigned kMaxGridX = 0x7FFFFFFF, kMaxGridYZ = 65535;

cudaError_t last_error = cudaSuccess;
cudaError_t device_fault = cudaSuccess;
std::vector<std::pair<const void*, size_t>>& DynamicLimits() {
  static auto* const limits = new std::vector<std::pair<const void*, size_t>>;
  return *limits;
}

void RunBlocks(const LaunchRequest& r, const std::function<void()>& body) {
  const size_t blocks = size_t{r.grid.x} * r.grid.y * r.grid.z;
  for (size_t i = 0; i < blocks; ++i) {
    // CUDA promises no order: run blocks backwards unless forward is asked for.
    const size_t k = options().order == Order::kForward ? i : blocks - 1 - i;
    blockIdx = {static_cast<unsigned>(k % r.grid.x), static_cast<unsigned>(k / r.grid.x % r.grid.y),
                static_cast<unsigned>(k / r.grid.x / r.grid.y)};
    ++stats().blocks;
    stats().threads += size_t{r.block.x} * r.block.y * r.block.z;
    TsanIgnore ignore;
    ResetSharedMemory(r.shared_bytes);
    CurrentBlock().Run(r.block, body);
    CheckSharedMemory();
  }
}

void RunGrid(const LaunchRequest& r, const std::function<void()>& body) {
  if (CurrentThread() != nullptr) throw std::runtime_error("emu: launch from device code");
  if (device_fault != cudaSuccess) return;
  if (++stats().launches == options().fault_at_launch) {
    device_fault = cudaErrorIllegalAddress;
    return;
  }
  blockDim = r.block;
  gridDim = r.grid;
  const DeviceAccess access;
  CurrentBlock().check_dependency_wait = r.overlap_previous;
  __tsan_release(StartToken());
  try {
    RunBlocks(r, body);
  } catch (...) {
    TsanIgnoreBegin();
    CurrentBlock().DropThreads();
    TsanIgnoreEnd();
    __tsan_acquire(EndToken());
    throw;
  }
  __tsan_acquire(EndToken());
}

bool FitsLimits(dim3 grid, dim3 block) {
  const size_t threads = size_t{block.x} * block.y * block.z;
  return threads > 0 && threads <= kMaxThreads && block.z <= kMaxBlockZ && grid.x > 0 &&
         grid.y > 0 && grid.z > 0 && grid.x <= kMaxGridX && grid.y <= kMaxGridYZ &&
         grid.z <= kMaxGridYZ;
}

}  // namespace

cudaError_t Submit(const LaunchRequest& request, std::function<void()> body) {
  std::lock_guard lock(DeviceMutex());
  if (device_fault != cudaSuccess) return device_fault;
  if (!FitsLimits(request.grid, request.block)) return SetError(cudaErrorInvalidConfiguration);
  size_t limit = kDefaultSharedLimit;
  for (const auto& [kernel, bytes] : DynamicLimits()) {
    if (kernel == request.kernel) limit = bytes;
  }
  if (request.shared_bytes > limit) return SetError(cudaErrorInvalidValue);
  Enqueue(request.stream, [request, body = std::move(body)] { RunGrid(request, body); });
  return cudaSuccess;
}

void CheckPointer(const void* p, int index) {
  if (p == nullptr || options().host_pointers) return;
  std::lock_guard lock(DeviceMutex());
  if (IsKernelAccessible(p)) return;
  throw std::runtime_error("emu: kernel argument " + std::to_string(index) +
                           " points to host memory");
}

void FailLayout(int index) {
  throw std::runtime_error("emu: kernel argument " + std::to_string(index) +
                           " holds a struct whose fields do not lie one after the other");
}

void SetDynamicLimit(const void* kernel, size_t bytes) {
  std::lock_guard lock(DeviceMutex());
  DynamicLimits().emplace_back(kernel, bytes);
}

cudaError_t DeviceFault() { return device_fault; }
void ReplaceDevice() { device_fault = cudaSuccess; }

cudaError_t SetError(cudaError_t e) { return last_error = e; }
cudaError_t LastError() { return last_error; }
cudaError_t TakeLastError() { return std::exchange(last_error, cudaSuccess); }

}  // namespace vitrine::emu
