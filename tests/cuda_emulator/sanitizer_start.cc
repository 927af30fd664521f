// What a sanitizer must be told before main.
#include "cuda_emulator/sanitizer.h"

#if EMU_MSAN
// libstdc++ and GoogleTest are not instrumented: what they wrote looks uninitialised to
// interceptors such as strlen. Kernels call none of these, so nothing is lost.
__attribute__((constructor(101))) static void DisableInterceptorChecks() {
  __msan_scoped_disable_interceptor_checks();
}
#endif
