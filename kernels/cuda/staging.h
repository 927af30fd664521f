// How host memory reaches kernels without a synchronisation.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/cuda_check.h"

namespace vitrine::cuda {

struct CudaFree {
  void operator()(void* data) const { CheckCuda(cudaFree(data)); }
};
struct CudaFreeHost {
  void operator()(void* data) const { CheckCuda(cudaFreeHost(data)); }
};

// Device memory that grows to the largest size asked for, which waits for the device; a step that
// is no larger than an earlier one allocates nothing.
class GrowingMemory {
 public:
  explicit GrowingMemory(cudaStream_t stream) : stream_(stream) {}

  // Contents are lost when it grows.
  void* Reserve(size_t bytes);

 private:
  cudaStream_t stream_;
  size_t bytes_ = 0;
  std::unique_ptr<void, CudaFree> data_;
};

// Pinned memory with its counterpart on the device, handed out from the front.
class StagingArena {
 public:
  struct Place {
    std::byte* host = nullptr;
    std::byte* device = nullptr;
    size_t chunk = 0;  // Places of one chunk are as far apart on the host as on the device.
  };
  // Aligned for any type. Allocates only what no earlier round has needed. Null where the device
  // has failed.
  Place Take(size_t bytes);
  // Everything that was taken may be overwritten.
  void Reset();

 private:
  struct Chunk {
    size_t bytes;
    std::unique_ptr<std::byte, CudaFreeHost> host;
    std::unique_ptr<std::byte, CudaFree> device;
  };

  std::vector<Chunk> chunks_;
  size_t chunk_ = 0;  // The one that is being filled, up to used_.
  size_t used_ = 0;
};

class Staging;

// The host arrays that a recorded step reads. They stay on the device from replay to replay: the
// recording holds no uploads, and what changed is sent before it runs. Of block tables that is
// little, an entry of a sequence every kKvBlockTokens steps.
class RecordedArrays {
 public:
  // Takes the arrays as they are now and enqueues the differences, by way of `staging`: replays
  // that are still under way see what they were enqueued with.
  void Update(Staging& staging);

 private:
  friend class Staging;
  struct Array {
    const std::byte* source = nullptr;
    StagingArena::Place place;  // On the host: what the device has once all uploads have run.
    size_t bytes = 0;
    bool is_own = false;  // Stays as it was when recorded.
  };
  struct Piece {
    StagingArena::Place place;
    size_t bytes = 0;
  };

  void AddDifferences(const Array& array);
  // Extends the last piece where that is no dearer than a further one.
  void AddPiece(const StagingArena::Place& place, size_t bytes);

  StagingArena arena_;
  std::vector<Array> arrays_;
  size_t uploaded_ = 0;        // The first so many of arrays_ are on the device.
  std::vector<Piece> pieces_;  // What an Update sends; kept for its capacity.
};

// Copies of the host arrays of the steps that are under way. An array goes through pinned memory,
// so its upload overlaps with the host, and the layers of a step share one copy.
class Staging {
 public:
  explicit Staging(cudaStream_t stream) : stream_(stream) {}

  // The array in device memory, valid for what is enqueued until the next Reset.
  template <class T>
  const T* Stage(std::span<const T> array) {
    return static_cast<const T*>(StageBytes(array.data(), array.size_bytes(), /*is_own=*/false));
  }
  // The same for an array of the backend's own, which a replay needs as it was when recorded.
  template <class T>
  const T* StageOwn(std::span<const T> array) {
    return static_cast<const T*>(StageBytes(array.data(), array.size_bytes(), /*is_own=*/true));
  }

  // Everything enqueued must be complete.
  void Reset();

  // Tells what is enqueued from here on from what was before, so that the memory of the latter can
  // be had again while the former is under way. Only the first of several marks counts.
  void Mark();
  // Everything enqueued before the mark must be complete. Unmarks.
  void ResetMarked();

  // Enqueues a copy of the host memory as it is now.
  void Upload(const std::byte* source, size_t bytes, std::byte* target);

  // From here to StopRecording arrays go to memory that `recorded` keeps.
  void StartRecording(RecordedArrays& recorded);
  void StopRecording();
  bool is_recording() const { return recorded_ != nullptr; }

 private:
  struct Staged {
    const void* source;
    size_t bytes;
    const std::byte* host;
    const std::byte* device;
  };

  const void* StageBytes(const void* source, size_t bytes, bool is_own);
  StagingArena& arena() { return arenas_[current_]; }

  cudaStream_t stream_;
  std::array<StagingArena, 2> arenas_;  // The other one is empty, or holds what is marked.
  size_t current_ = 0;
  bool is_marked_ = false;
  std::vector<Staged> staged_;  // In arena(), or in that of recorded_.
  RecordedArrays* recorded_ = nullptr;
};

}  // namespace vitrine::cuda
