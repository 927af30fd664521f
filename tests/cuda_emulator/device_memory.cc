#include "cuda_emulator/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cuda_emulator/options.h"
#include "cuda_emulator/sanitizer.h"
#include "cuda_emulator/stop.h"

namespace vitrine::emu {
namespace {

constexpr size_t kPage = 4096, kDeviceAlign = 256, kGuardedAlign = 16;

struct Allocation {
  char* data;
  size_t bytes;
  char* mapping;  // null: from the heap
  size_t mapped_bytes;
};
std::vector<Allocation>& Allocations() {
  static auto* const allocations = new std::vector<Allocation>;
  return *allocations;
}

size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

// Right-aligned against an inaccessible page, so that even an uninstrumented overrun faults.
void* AllocateGuarded(size_t bytes) {
  const size_t mapped = RoundUp(bytes, kPage) + kPage;
  void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  char* const base = static_cast<char*>(p);
  char* const data = base + mapped - kPage - RoundUp(bytes, kGuardedAlign);
  memset(data, 0xFF, bytes);
  Allocations().push_back({data, bytes, base, mapped});
  mprotect(base, mapped, PROT_NONE);
  return data;
}

void* AllocateFromHeap(size_t bytes, size_t align) {
  void* p = nullptr;
  if (posix_memalign(&p, align, std::max<size_t>(bytes, 1)) != 0) return nullptr;
  Allocations().push_back({static_cast<char*>(p), bytes, nullptr, 0});
  return p;
}

}  // namespace

void* AllocateDevice(size_t bytes) {
  if (options().protect_device_memory) return AllocateGuarded(bytes);
  void* const p = AllocateFromHeap(bytes, kDeviceAlign);
  if (p == nullptr) return nullptr;
  memset(p, 0xFF, bytes);
  __msan_poison(p, bytes);
  return p;
}

void* AllocatePinned(size_t bytes) { return AllocateFromHeap(bytes, kPage); }

bool FreeAllocation(void* p) {
  auto& all = Allocations();
  const auto it = std::find_if(all.begin(), all.end(), [p](auto& a) { return a.data == p; });
  if (it == all.end()) return false;
  if (it->mapping != nullptr) {
    munmap(it->mapping, it->mapped_bytes);
  } else {
    free(p);
  }
  all.erase(it);
  return true;
}

bool IsKernelAccessible(const void* p) {
  for (const Allocation& a : Allocations()) {
    if (p >= a.data && p <= a.data + a.bytes) return true;
  }
  return false;
}

bool IsWithinAllocation(const void* p, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(p), end = begin + bytes;
  for (const Allocation& a : Allocations()) {
    const auto first = reinterpret_cast<uintptr_t>(a.data), last = first + a.bytes;
    if (begin < last && end > first) return begin >= first && end <= last;
  }
  return true;
}

size_t AllocatedBytes() {
  size_t sum = 0;
  for (const Allocation& a : Allocations()) sum += a.bytes;
  return sum;
}

void ProtectDeviceMemory(bool accessible) {
  if (!options().protect_device_memory) return;
  for (const Allocation& a : Allocations()) {
    if (a.mapping == nullptr) continue;
    mprotect(a.mapping, a.mapped_bytes - kPage, accessible ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
}

}  // namespace vitrine::emu
