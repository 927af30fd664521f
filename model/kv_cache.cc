#include "model/kv_cache.h"

#include "kernels/check.h"

namespace vitrine {

BlockPool::BlockPool(int num_blocks)
    : num_blocks_(num_blocks), is_owned_(static_cast<size_t>(num_blocks), false) {
  free_list_.reserve(static_cast<size_t>(num_blocks));
  // Handed out from the back: a fresh pool gives ascending, neighbouring blocks, which lie next to
  // each other in memory.
  for (int block = num_blocks - 1; block >= 0; --block) free_list_.push_back(block);
}

bool BlockPool::Acquire(int count, std::vector<int32_t>& table) {
  if (count > free()) return false;
  for (int i = 0; i < count; ++i) {
    const int32_t block = free_list_.back();
    free_list_.pop_back();
    is_owned_[static_cast<size_t>(block)] = true;
    table.push_back(block);
  }
  return true;
}

void BlockPool::Release(std::vector<int32_t>& table) {
  for (size_t i = table.size(); i-- > 0;) {
    const auto block = static_cast<size_t>(table[i]);
    VITRINE_CHECK(block < is_owned_.size() && is_owned_[block]);
    is_owned_[block] = false;
    free_list_.push_back(table[i]);
  }
  table.clear();
}

}  // namespace vitrine
