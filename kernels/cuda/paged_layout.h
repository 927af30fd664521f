// How kernels see a ragged batch and the paged keys and values of one layer.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/buffer.h"

namespace vitrine::cuda {

// A PagedBatch whose arrays lie in device memory.
struct DeviceBatch {
  const int32_t* row_begin = nullptr;       // [sequences + 1]
  const int32_t* first_position = nullptr;  // [sequences]
  const int32_t* block_table = nullptr;     // [sequences, max_blocks]; unused entries: any value
  int max_blocks = 0;
  int sequences = 0;
  int rows = 0;
};

struct RowPlace {
  int sequence;
  int position;
};

__device__ inline RowPlace PlaceOf(const DeviceBatch& batch, int row) {
  int first = 0, last = batch.sequences - 1;  // The last sequence that begins at or before `row`.
  while (first < last) {
    const int middle = (first + last + 1) / 2;
    if (batch.row_begin[middle] <= row) {
      first = middle;
    } else {
      last = middle - 1;
    }
  }
  return {first, batch.first_position[first] + row - batch.row_begin[first]};
}

// Keys and values of one layer: [blocks][K, V][kv_heads][kKvBlockTokens][head_dim].
template <class T>
struct PagedKv {
  T* data = nullptr;
  int kv_heads = 0;
  int head_dim = 0;

  // Offset of the key of a block's first token; its value lies ValueOffset() further.
  __host__ __device__ size_t KeyOffset(int block, int kv_head) const {
    return (static_cast<size_t>(block) * 2 * static_cast<size_t>(kv_heads) +
            static_cast<size_t>(kv_head)) *
           static_cast<size_t>(kKvBlockTokens * head_dim);
  }
  __host__ __device__ size_t ValueOffset() const {
    return static_cast<size_t>(kv_heads * kKvBlockTokens * head_dim);
  }
};

}  // namespace vitrine::cuda
