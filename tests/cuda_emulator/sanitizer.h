// What each sanitizer must be told about fibres, shared memory and CUDA's ordering rules.
// Included by the emulator's own sources; kernels only see the two macros at the top.
#pragma once
#include <cstddef>

#if defined(__has_feature)
#define EMU_HAS(x) __has_feature(x)
#else
#define EMU_HAS(x) 0
#endif

#if EMU_HAS(memory_sanitizer)
#include <sanitizer/msan_interface.h>
#define EMU_MSAN 1
// libm is not instrumented: without this check MSan would lose track of garbage there.
#define EMU_MSAN_CHECK(x) __msan_check_mem_is_initialized(&(x), sizeof(x))
#else
#define EMU_MSAN 0
#define EMU_MSAN_CHECK(x) ((void)0)
#define __msan_poison(p, n) ((void)(p), (void)(n))
#define __msan_unpoison(p, n) ((void)(p), (void)(n))
#endif

#if EMU_HAS(thread_sanitizer) || defined(__SANITIZE_THREAD__)
#define EMU_KERNEL_TSAN 1  // this translation unit is instrumented
#else
#define EMU_KERNEL_TSAN 0
#endif
// Collective bodies run on behalf of all lanes: their accesses belong to no CUDA thread.
#define EMU_NO_TSAN __attribute__((no_sanitize("thread")))
// Exceptions come from libstdc++, which MSan does not see writing them.
#if EMU_MSAN
#define EMU_NO_MSAN __attribute__((no_sanitize("memory")))
#else
#define EMU_NO_MSAN
#endif

#if defined(__SANITIZE_ADDRESS__) || EMU_HAS(address_sanitizer)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define EMU_ASAN 1
#else
#define EMU_ASAN 0
#define ASAN_POISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

// EMU_TSAN is set by the build for the emulator's own sources, which are then compiled
// WITHOUT -fsanitize=thread: only kernel code is instrumented, and the emulator tells TSan
// about fibres and barriers by hand.
#if defined(EMU_TSAN)
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char*, int);
void AnnotateIgnoreReadsEnd(const char*, int);
void AnnotateIgnoreWritesBegin(const char*, int);
void AnnotateIgnoreWritesEnd(const char*, int);
void __tsan_read_range(void*, unsigned long);
void __tsan_write_range(void*, unsigned long);
}
#else
#define __tsan_acquire(p) ((void)(p))
#define __tsan_release(p) ((void)(p))
#define __tsan_read_range(p, n) ((void)(p), (void)(n))
#define __tsan_write_range(p, n) ((void)(p), (void)(n))
#endif

namespace vitrine::emu {

inline void TsanIgnoreBegin() {
#if defined(EMU_TSAN)
  AnnotateIgnoreReadsBegin("", 0);
  AnnotateIgnoreWritesBegin("", 0);
#endif
}
inline void TsanIgnoreEnd() {
#if defined(EMU_TSAN)
  AnnotateIgnoreWritesEnd("", 0);
  AnnotateIgnoreReadsEnd("", 0);
#endif
}
// The emulator's own bookkeeping (allocations, memcpy) is not the kernel's business.
struct TsanIgnore {
  TsanIgnore() { TsanIgnoreBegin(); }
  ~TsanIgnore() { TsanIgnoreEnd(); }
  TsanIgnore(const TsanIgnore&) = delete;
  TsanIgnore& operator=(const TsanIgnore&) = delete;
};

}  // namespace vitrine::emu
