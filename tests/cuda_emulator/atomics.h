// CUDA atomics: relaxed, and ordered for TSan only by the fences around them.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cuda_emulator/sanitizer.h"

namespace vitrine::emu {

void AtomicHook(void* p);
// __threadfence: before an atomic it publishes, after one it acquires.
void Fence();

template <class T, class F>
T AtomicUpdate(T* p, F f) {
  using Bits = std::conditional_t<sizeof(T) == 2, uint16_t,
                                  std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
  Bits* const bits = reinterpret_cast<Bits*>(p);
#if EMU_KERNEL_TSAN
  AtomicHook(p);
#endif
  Bits old = __atomic_load_n(bits, __ATOMIC_RELAXED), next;
  do {
    const T updated = f(__builtin_bit_cast(T, old));
    memcpy(&next, &updated, sizeof next);
  } while (
      !__atomic_compare_exchange_n(bits, &old, next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return __builtin_bit_cast(T, old);
}

}  // namespace vitrine::emu
