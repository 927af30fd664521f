#include "kernels/cuda/staging.h"

#include <algorithm>
#include <cstring>

namespace vitrine::cuda {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kChunkBytes = size_t{1} << 18;
// Differences are looked for in pieces of so many bytes.
constexpr size_t kLineBytes = 256;
// What the bus moves in the time that a further copy takes to start.
constexpr size_t kCopyBytes = size_t{16} << 10;

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
  const Place place = {chunk.host.get() + used_, chunk.device.get() + used_, chunk_};
  used_ += rounded;
  return place;
}

void RecordedArrays::Update(Staging& staging) {
  pieces_.clear();
  for (size_t i = 0; i < arrays_.size(); ++i) {
    const Array& array = arrays_[i];
    if (i < uploaded_) {
      if (!array.is_own) AddDifferences(array);
      continue;
    }
    if (!array.is_own) std::memcpy(array.place.host, array.source, array.bytes);
    AddPiece(array.place, array.bytes);
  }
  uploaded_ = arrays_.size();
  for (const Piece& piece : pieces_) {
    staging.Upload(piece.place.host, piece.bytes, piece.place.device);
  }
}

void RecordedArrays::AddDifferences(const Array& array) {
  for (size_t begin = 0; begin < array.bytes; begin += kLineBytes) {
    const size_t bytes = std::min(kLineBytes, array.bytes - begin);
    std::byte* const host = array.place.host + begin;
    if (std::memcmp(host, array.source + begin, bytes) == 0) continue;
    std::memcpy(host, array.source + begin, bytes);
    AddPiece({host, array.place.device + begin, array.place.chunk}, bytes);
  }
}

void RecordedArrays::AddPiece(const StagingArena::Place& place, size_t bytes) {
  if (!pieces_.empty() && pieces_.back().place.chunk == place.chunk) {
    Piece& last = pieces_.back();
    const auto begin = static_cast<size_t>(place.host - last.place.host);
    if (begin <= last.bytes + kCopyBytes) {
      last.bytes = begin + bytes;
      return;
    }
  }
  pieces_.push_back({place, bytes});
}

void Staging::Reset() {
  staged_.clear();
  for (StagingArena& arena : arenas_) arena.Reset();
  is_marked_ = false;
}

void Staging::Mark() {
  if (is_marked_) return;
  staged_.clear();
  current_ = 1 - current_;
  is_marked_ = true;
}

void Staging::ResetMarked() {
  if (!is_marked_) return;
  arenas_[1 - current_].Reset();
  is_marked_ = false;
}

void Staging::Upload(const std::byte* source, size_t bytes, std::byte* target) {
  const StagingArena::Place place = arena().Take(bytes);
  if (place.host == nullptr) return;
  std::memcpy(place.host, source, bytes);
  CheckCuda(cudaMemcpyAsync(target, place.host, bytes, cudaMemcpyHostToDevice, stream_));
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
  const StagingArena::Place place = (is_recording() ? recorded_->arena_ : arena()).Take(bytes);
  if (place.host == nullptr) return nullptr;
  std::memcpy(place.host, source, bytes);
  staged_.push_back({source, bytes, place.host, place.device});
  if (is_recording()) {
    recorded_->arrays_.push_back({static_cast<const std::byte*>(source), place, bytes, is_own});
  } else {
    CheckCuda(cudaMemcpyAsync(place.device, place.host, bytes, cudaMemcpyHostToDevice, stream_));
  }
  return place.device;
}

}  // namespace vitrine::cuda
