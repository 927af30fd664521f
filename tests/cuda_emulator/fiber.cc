#include "cuda_emulator/fiber.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "cuda_emulator/sanitizer.h"

// Stack switching. Boost.Context would do as well but brings 138 MB of headers; ucontext
// would too, at two system calls a switch. Saves what the System V ABI calls callee-saved.
#if !defined(__x86_64__)
#error "port emu_switch_stack"
#endif
extern "C" void emu_switch_stack(void** save, void* load);
asm(R"(
.text
.globl emu_switch_stack
.type emu_switch_stack,@function
emu_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emu_switch_stack,.-emu_switch_stack
)");

// A sanitizer must not see a switch in an instrumented function: its shadow of the call
// stack would underflow.
#define EMU_RAW __attribute__((no_sanitize("address"), noinline))

namespace vitrine::emu {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kSavedRegisters = 6;

// Who resumed the current fibre. One fibre runs at a time and fibres do not nest.
struct Resumer {
  void* context = nullptr;
  void* fake_stack = nullptr;
  void* tsan_fiber = nullptr;
  const void* stack_bottom = nullptr;
  size_t stack_size = 0;
};
Resumer resumer;
thread_local Fiber* current = nullptr;

}  // namespace

Fiber::Fiber() {
  void* p = mmap(nullptr, kFiberStackBytes + kPage, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  mprotect(p, kPage, PROT_NONE);  // a kernel that overflows its stack faults
  stack_ = static_cast<char*>(p) + kPage;
#if defined(EMU_TSAN)
  tsan_fiber_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(EMU_TSAN)
  __tsan_destroy_fiber(tsan_fiber_);
#endif
  ASAN_UNPOISON_MEMORY_REGION(stack_, kFiberStackBytes);
  munmap(stack_ - kPage, kFiberStackBytes + kPage);
}

void Fiber::Start(void (*entry)()) {
  ASAN_UNPOISON_MEMORY_REGION(stack_, kFiberStackBytes);  // abandoned frames leave poison behind
  void** top = reinterpret_cast<void**>(stack_ + kFiberStackBytes) - (kSavedRegisters + 2);
  std::fill(top, top + kSavedRegisters + 2, nullptr);  // registers, the entry point, no caller
  top[kSavedRegisters] = reinterpret_cast<void*>(entry);
  context_ = top;
  fake_stack_ = nullptr;
}

EMU_RAW void Fiber::Resume() {
  current = this;
#if EMU_ASAN
  __sanitizer_start_switch_fiber(&resumer.fake_stack, stack_, kFiberStackBytes);
#elif defined(EMU_TSAN)
  // Without synchronisation: two CUDA threads are ordered only by what CUDA says orders them.
  resumer.tsan_fiber = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_fiber_, __tsan_switch_to_fiber_no_sync);
#endif
  emu_switch_stack(&resumer.context, context_);
#if EMU_ASAN
  __sanitizer_finish_switch_fiber(resumer.fake_stack, nullptr, nullptr);
#endif
  current = nullptr;
}

EMU_RAW void Fiber::SwitchBack([[maybe_unused]] bool last) {
  Fiber* const self = current;
#if EMU_ASAN
  __sanitizer_start_switch_fiber(last ? nullptr : &self->fake_stack_, resumer.stack_bottom,
                                 resumer.stack_size);
#elif defined(EMU_TSAN)
  __tsan_switch_to_fiber(resumer.tsan_fiber, __tsan_switch_to_fiber_no_sync);
#endif
  emu_switch_stack(&self->context_, resumer.context);
#if EMU_ASAN
  __sanitizer_finish_switch_fiber(self->fake_stack_, nullptr, nullptr);
#endif
}

EMU_RAW void Fiber::FinishFirstSwitch() {
#if EMU_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &resumer.stack_bottom, &resumer.stack_size);
#endif
}

void Fiber::Suspend() { SwitchBack(false); }

void Fiber::SuspendForever() {
  SwitchBack(true);
  abort();  // a finished fibre must be started again, not resumed
}

Fiber* Fiber::Current() { return current; }

void Fiber::ReleaseInItsName([[maybe_unused]] char* token) {
#if defined(EMU_TSAN)
  void* const self = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_fiber_, __tsan_switch_to_fiber_no_sync);
  __tsan_release(token);
  __tsan_switch_to_fiber(self, __tsan_switch_to_fiber_no_sync);
#endif
}

Fiber* FiberPool::At(size_t index) {
  if (index >= fibers_.size()) fibers_.resize(index + 1);
  if (!fibers_[index]) fibers_[index] = std::make_unique<Fiber>();
  return fibers_[index].get();
}

void FiberPool::Drop(char* token) {
  for (auto& fiber : fibers_) {
    if (!fiber) continue;
    fiber->ReleaseInItsName(token);
    fiber.reset();
  }
}

}  // namespace vitrine::emu
