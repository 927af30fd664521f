#include "kernels/cuda/host_copies.h"

#include <algorithm>
#include <cstring>

namespace vitrine::cuda {
namespace {

constexpr size_t kPinnedBytes = size_t{1} << 16;
constexpr size_t kAlignment = 64;

}  // namespace

HostCopies::HostCopies(cudaStream_t compute) : compute_(compute) {
  CheckCuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  CheckCuda(cudaEventCreateWithFlags(&is_computed_, cudaEventDisableTiming));
  void* pinned = nullptr;
  CheckCuda(cudaMallocHost(&pinned, kPinnedBytes));
  pinned_.reset(static_cast<std::byte*>(pinned));
}

HostCopies::~HostCopies() {
  CheckCuda(cudaStreamSynchronize(stream_));
  CheckCuda(cudaEventDestroy(is_computed_));
  CheckCuda(cudaStreamDestroy(stream_));
}

std::byte* HostCopies::TakePinned(size_t bytes) {
  if (pinned_ == nullptr || bytes > kPinnedBytes - used_) return nullptr;
  std::byte* const taken = pinned_.get() + used_;
  used_ = std::min(kPinnedBytes, used_ + (bytes + kAlignment - 1) / kAlignment * kAlignment);
  return taken;
}

void HostCopies::Copy(const void* source, void* target, size_t bytes) {
  const size_t used = used_;
  std::byte* const pinned = TakePinned(bytes);
  if (bytes > 0) {
    CheckCuda(cudaMemcpyAsync(pinned != nullptr ? pinned : target, source, bytes,
                              cudaMemcpyDeviceToHost, compute_));
  }
  CheckCuda(cudaStreamSynchronize(compute_));
  if (pinned != nullptr) std::memcpy(target, pinned, bytes);
  used_ = used;
}

void HostCopies::Start(const void* source, void* target, size_t bytes) {
  CheckCuda(cudaEventRecord(is_computed_, compute_));
  CheckCuda(cudaStreamWaitEvent(stream_, is_computed_, 0));
  if (bytes == 0) return;
  std::byte* const pinned = TakePinned(bytes);
  if (pinned != nullptr) started_.push_back({pinned, target, bytes});
  CheckCuda(cudaMemcpyAsync(pinned != nullptr ? pinned : target, source, bytes,
                            cudaMemcpyDeviceToHost, stream_));
}

void HostCopies::Finish() {
  CheckCuda(cudaStreamSynchronize(stream_));
  for (const Started& copy : started_) std::memcpy(copy.target, copy.pinned, copy.bytes);
  started_.clear();
  used_ = 0;
}

}  // namespace vitrine::cuda
