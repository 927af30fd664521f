// Denormal numbers are read and written as zero while an object of this class lives.
//
// The bf16 dot product of the hardware always does so; with it everywhere, every instruction set
// computes the same bits.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace vitrine::cpu {

class FlushDenormals {
 public:
#if defined(__x86_64__)
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kFlushToZero | kInputsAreZero); }
  ~FlushDenormals() { _mm_setcsr(before_); }
#else
  FlushDenormals() = default;
  ~FlushDenormals() = default;
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr unsigned kFlushToZero = 0x8000;
  static constexpr unsigned kInputsAreZero = 0x0040;
  unsigned before_;
#endif
};

}  // namespace vitrine::cpu
