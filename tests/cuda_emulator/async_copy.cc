#include "cuda_emulator/async_copy.h"

#include <cstring>
#include <utility>

#include "cuda_emulator/block.h"
#include "cuda_emulator/sanitizer.h"

namespace vitrine::emu {
namespace {

void Perform(const AsyncCopy& c) {
  __tsan_write_range(c.dst, 16);
  TsanIgnore ignore;
  if (c.valid) {
    memcpy(c.dst, c.src, 16);
  } else {
    memset(c.dst, 0, 16);
  }
}

}  // namespace

void AsyncCopy16(void* dst, const void* src, bool valid, Site site) {
  if (reinterpret_cast<uintptr_t>(dst) % 16 != 0 ||
      (valid && reinterpret_cast<uintptr_t>(src) % 16 != 0)) {
    Fail("cp.async with a misaligned address", site);
  }
  if (valid) {  // the sanitizers judge the source here, at the right call stack
    __tsan_read_range(const_cast<void*>(src), 16);
    const uint64_t* p = static_cast<const uint64_t*>(src);
    asm volatile("" ::"r"(p[0]), "r"(p[1]));
  }
  const AsyncCopy copy{dst, src, valid};
  const bool late =
      options().copies == Copies::kLate || (options().copies == Copies::kRandom && Random(2) != 0);
  if (!late) return Perform(copy);
  __tsan_write_range(dst, 16);
  TsanIgnore ignore;
  memset(dst, 0xFF, 16);
  __msan_poison(dst, 16);
  CurrentThread()->open.push_back(copy);
}

void AsyncCommit() {
  TsanIgnore ignore;
  Thread* const self = CurrentThread();
  self->groups.push_back(std::exchange(self->open, {}));
}

void AsyncWait(unsigned keep) {
  auto& groups = CurrentThread()->groups;
  while (groups.size() > keep) {
    for (const AsyncCopy& c : groups.front()) Perform(c);
    TsanIgnore ignore;
    groups.erase(groups.begin());
  }
}

void FinishAsyncCopies(Thread* thread) {
  for (const auto& group : thread->groups) {
    for (const AsyncCopy& c : group) Perform(c);
  }
  for (const AsyncCopy& c : thread->open) Perform(c);
  TsanIgnore ignore;
  thread->groups.clear();
  thread->open.clear();
}

}  // namespace vitrine::emu
