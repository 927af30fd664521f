// Memory in large blocks that the kernel is asked to back with huge pages.
//
// Weights and caches are read from end to end for every token: 4 KiB pages would spend a page walk
// every 64 cache lines. Many matrices share a block, because one page of 2 MiB each would waste as
// much as they hold. A block goes back to the system with its last piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/buffer.h"

namespace vitrine::cpu {

// Not thread-safe. Must outlive what it handed out.
class PageArena {
 public:
  PageArena() = default;
  ~PageArena();
  PageArena(const PageArena&) = delete;
  PageArena& operator=(const PageArena&) = delete;

  // Zeroed, aligned to 64 bytes; null when the system has no memory.
  void* Allocate(size_t bytes);
  void Free(void* data);

  // The same as a Buffer; its data is null when the system has no memory.
  Buffer AllocateBuffer(size_t bytes);

 private:
  struct Block {
    uint8_t* base = nullptr;  // Aligned to a huge page.
    size_t bytes = 0;
    size_t used = 0;
    int pieces = 0;
    void* mapping = nullptr;
    size_t mapping_bytes = 0;
  };

  static bool Map(size_t bytes, Block& block);

  std::vector<Block> blocks_;  // Pieces come from the last one only.
};

}  // namespace vitrine::cpu
