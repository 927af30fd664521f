// Who owns which block of the KV storage: pure bookkeeping on the host, no device memory.
//
// Invariant, checked: free() + owned() == num_blocks(). Not thread-safe; the engine thread owns it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/buffer.h"

namespace vitrine {

class BlockPool {
 public:
  explicit BlockPool(int num_blocks);

  int num_blocks() const { return num_blocks_; }
  int free() const { return static_cast<int>(free_list_.size()); }
  int owned() const { return num_blocks_ - free(); }

  // Appends `count` blocks to `table`; false and unchanged when fewer are free.
  bool Acquire(int count, std::vector<int32_t>& table);

  // Gives all blocks of `table` back and clears it. A block that is not owned is a bug and aborts.
  void Release(std::vector<int32_t>& table);

 private:
  int num_blocks_;
  std::vector<int32_t> free_list_;
  std::vector<bool> is_owned_;
};

// Blocks that hold `tokens` tokens.
constexpr int BlocksFor(int64_t tokens) {
  return static_cast<int>((tokens + kKvBlockTokens - 1) / kKvBlockTokens);
}

}  // namespace vitrine
