#include "kernels/cuda/staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace vitrine::cuda {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kChunkBytes = size_t{1} << 18;

size_t RoundUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

void* GrowingMemory::Reserve(size_t bytes) {
  if (bytes <= bytes_) return data_.get();
  CheckCuda(cudaStreamSynchronize(stream_));
  data_.reset();
  void* data = nullptr;
  CheckCuda(cudaMalloc(&data, bytes));
  data_.reset(data);
  bytes_ = bytes;
  return data;
}

void StagingArena::Reset() {
  chunk_ = 0;
  used_ = 0;
}

StagingArena::Place StagingArena::Take(size_t bytes) {
  const size_t rounded = RoundUp(bytes);
  while (chunk_ < chunks_.size() && chunks_[chunk_].bytes - used_ < rounded) {
    ++chunk_;
    used_ = 0;
  }
  if (chunk_ == chunks_.size()) {
    const size_t size = std::max(rounded, kChunkBytes);
    void* host = nullptr;
    void* device = nullptr;
    CheckCuda(cudaMallocHost(&host, size));
    CheckCuda(cudaMalloc(&device, size));
    if (DeviceFault() != cudaSuccess) return {};
    chunks_.push_back({size,
                       std::unique_ptr<std::byte, CudaFreeHost>(static_cast<std::byte*>(host)),
                       std::unique_ptr<std::byte, CudaFree>(static_cast<std::byte*>(device))});
  }
  const Chunk& chunk = chunks_[chunk_];
  const Place place = {chunk.host.get() + used_, chunk.device.get() + used_};
  used_ += rounded;
  return place;
}

void RecordedArrays::Refresh() const {
  for (const Array& array : arrays_) std::memcpy(array.host, array.source, array.bytes);
}

void Staging::Reset() {
  staged_.clear();
  arena_.Reset();
}

void Staging::StartRecording(RecordedArrays& recorded) {
  staged_.clear();
  recorded_ = &recorded;
}

void Staging::StopRecording() {
  staged_.clear();
  recorded_ = nullptr;
}

const void* Staging::StageBytes(const void* source, size_t bytes, bool is_own) {
  if (bytes == 0) return nullptr;
  for (const Staged& staged : staged_) {
    // The contents are compared too, so that an array that died early cannot do harm.
    if (staged.source == source && staged.bytes == bytes &&
        std::memcmp(staged.host, source, bytes) == 0) {
      return staged.device;
    }
  }
  const StagingArena::Place place = (is_recording() ? recorded_->arena_ : arena_).Take(bytes);
  if (place.host == nullptr) return nullptr;
  std::memcpy(place.host, source, bytes);
  CheckCuda(cudaMemcpyAsync(place.device, place.host, bytes, cudaMemcpyHostToDevice, stream_));
  staged_.push_back({source, bytes, place.host, place.device});
  if (is_recording() && !is_own) recorded_->arrays_.push_back({source, place.host, bytes});
  return place.device;
}

}  // namespace vitrine::cuda
