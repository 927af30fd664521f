#include "cuda_emulator/atomics.h"

#include "cuda_emulator/block.h"

namespace vitrine::emu {

void AtomicHook(void* p) {
  TsanIgnore ignore;
  Thread* const self = CurrentThread();
  if (self->fenced) __tsan_release(p);
  self->unfenced.push_back(p);
}

void Fence() {
  TsanIgnore ignore;
  Thread* const self = CurrentThread();
  self->fenced = true;
  for (void* p : self->unfenced) __tsan_acquire(p);
  self->unfenced.clear();
}

}  // namespace vitrine::emu
