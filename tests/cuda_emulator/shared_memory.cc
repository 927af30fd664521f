#include "cuda_emulator/shared_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cuda_emulator/options.h"
#include "cuda_emulator/sanitizer.h"
#include "cuda_emulator/stop.h"

namespace vitrine::emu {
namespace {

constexpr size_t kArenaBytes = 512 * 1024, kRedZone = 128, kFront = 1024, kAlign = 128;
// All ones is NaN in every float type: uninitialised reads show in results.
constexpr unsigned char kGarbage = 0xFF;

struct StaticArray {
  const void* key;
  unsigned char* data;
};
struct Gap {
  unsigned char* data;
  size_t bytes;
};

unsigned char* arena = nullptr;
size_t used = 0, static_bytes = 0;
std::vector<StaticArray> arrays;
std::vector<Gap> gaps;

// A red zone after whatever was placed last, and alignment for what comes next.
void CloseGap() {
  const size_t end = (used + kRedZone + kAlign - 1) / kAlign * kAlign;
  if (end > kArenaBytes) Fail("more shared memory than any device has");
  gaps.push_back({arena + used, end - used});
  used = end;
}

void MapArena() {
#if defined(EMU_TSAN)  // fresh shadow, without ordering this block after the previous one
  if (arena != nullptr) munmap(arena, kArenaBytes);
  arena = nullptr;
#endif
  if (arena != nullptr) return;
  void* p = mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  arena = static_cast<unsigned char*>(p);
  used = kArenaBytes;
}

}  // namespace

void ResetSharedMemory(size_t dynamic_bytes) {
  TsanIgnore ignore;
  MapArena();
  ASAN_UNPOISON_MEMORY_REGION(arena, kArenaBytes);
  memset(arena, kGarbage, std::max(used, kFront + dynamic_bytes + 2 * kRedZone));
  ASAN_POISON_MEMORY_REGION(arena, kArenaBytes);
  ASAN_UNPOISON_MEMORY_REGION(arena + kFront, dynamic_bytes);
  __msan_poison(arena, kArenaBytes);
  used = kFront + dynamic_bytes;
  static_bytes = 0;
  gaps.assign({{arena, kFront}});
  arrays.clear();
}

void CheckSharedMemory() {
  if (EMU_ASAN || EMU_MSAN) return;
  CloseGap();
  for (const Gap& gap : gaps) {
    for (size_t i = 0; i < gap.bytes; ++i) {
      if (gap.data[i] == kGarbage) continue;
      throw std::runtime_error("emu: write outside a shared array, " +
                               std::to_string(gap.data + i - arena - static_cast<long>(kFront)) +
                               " bytes from the dynamic base");
    }
  }
}

unsigned char* DynamicShared() { return arena + kFront; }

void* StaticSharedBytes(const void* key, size_t size) {
  TsanIgnore ignore;
  for (const StaticArray& a : arrays) {
    if (a.key == key) return a.data;
  }
  CloseGap();
  unsigned char* const p = arena + used;
  used += size;
  static_bytes += size;
  if (static_bytes > kDefaultSharedLimit) Fail("more than 48 KiB of static shared memory");
  ASAN_UNPOISON_MEMORY_REGION(p, size);
  memset(p, kGarbage, size);
  __msan_poison(p, size);
  arrays.push_back({key, p});
  return p;
}

}  // namespace vitrine::emu
