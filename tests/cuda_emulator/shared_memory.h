// The shared memory of the block being executed: dynamic region, static arrays, red zones.
#pragma once
#include <cstddef>
#include <type_traits>

namespace vitrine::emu {

// Devices allow this much static, and this much dynamic shared memory without opting in.
inline constexpr size_t kDefaultSharedLimit = 48 * 1024;

// Fresh, uninitialised shared memory with a dynamic region of exactly `dynamic_bytes`.
void ResetSharedMemory(size_t dynamic_bytes);
// Throws if a stray write hit a red zone (builds without ASan; there ASan reports it at once).
void CheckSharedMemory();

unsigned char* DynamicShared();
// The array that belongs to `key` in this block, made on first use.
void* StaticSharedBytes(const void* key, size_t size);

template <class T>
T& StaticShared(const void* key) {
  return *static_cast<T*>(StaticSharedBytes(key, sizeof(T)));
}

}  // namespace vitrine::emu
