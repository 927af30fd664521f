#include "kernels/cpu/page_arena.h"

#include <sys/mman.h>

#include <algorithm>

#include "kernels/check.h"

namespace vitrine::cpu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kCacheLine = 64;
constexpr size_t kBlockBytes = size_t{64} << 20;

size_t RoundUp(size_t value, size_t step) { return (value + step - 1) / step * step; }

}  // namespace

PageArena::~PageArena() {
  for (const Block& block : blocks_) munmap(block.mapping, block.mapping_bytes);
}

bool PageArena::Map(size_t bytes, Block& block) {
  block.bytes = RoundUp(bytes, kHugePage);
  block.mapping_bytes = block.bytes + kHugePage;
  block.mapping = mmap(nullptr, block.mapping_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block.mapping == MAP_FAILED) return false;
  const auto address = reinterpret_cast<uintptr_t>(block.mapping);
  block.base = static_cast<uint8_t*>(block.mapping) + (RoundUp(address, kHugePage) - address);
  madvise(block.base, block.bytes, MADV_HUGEPAGE);  // A refusal only costs speed.
  return true;
}

void* PageArena::Allocate(size_t bytes) {
  if (bytes > SIZE_MAX / 2) return nullptr;
  bytes = std::max(RoundUp(bytes, kCacheLine), kCacheLine);
  if (blocks_.empty() || blocks_.back().bytes - blocks_.back().used < bytes) {
    Block block;
    if (!Map(std::max(bytes, kBlockBytes), block)) return nullptr;
    blocks_.push_back(block);
  }
  Block& block = blocks_.back();
  void* result = block.base + block.used;
  block.used += bytes;
  ++block.pieces;
  return result;
}

void PageArena::Free(void* data) {
  const auto* address = static_cast<const uint8_t*>(data);
  const auto owner = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& block) {
    return address >= block.base && address < block.base + block.bytes;
  });
  VITRINE_CHECK(owner != blocks_.end());
  if (--owner->pieces > 0) return;
  munmap(owner->mapping, owner->mapping_bytes);
  blocks_.erase(owner);
}

Buffer PageArena::AllocateBuffer(size_t bytes) {
  void* data = Allocate(bytes);
  if (data == nullptr) return {};
  const auto free = [](void* arena, void* memory, size_t) {
    static_cast<PageArena*>(arena)->Free(memory);
  };
  return {data, bytes, free, this};
}

}  // namespace vitrine::cpu
