// Fibres: stacks that one OS thread switches between. Knows nothing about CUDA.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

namespace vitrine::emu {

inline constexpr size_t kFiberStackBytes = 256 * 1024;

// One stack with a guard page below it. Pages are committed by the kernel when touched.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Prepares a run of `entry`, which must end in SuspendForever() instead of returning.
  // Abandons whatever the fibre was doing.
  void Start(void (*entry)());
  // Runs the fibre on the calling stack's behalf until it suspends.
  void Resume();
  // From inside the fibre: back to whoever resumed it.
  static void Suspend();
  [[noreturn]] static void SuspendForever();
  // First call of every entry function: tells ASan that the switch is complete.
  static void FinishFirstSwitch();
  static Fiber* Current();
  // TSan: makes all this fibre did happen before a later acquire of `token`.
  void ReleaseInItsName(char* token);

 private:
  static void SwitchBack(bool last);

  char* stack_ = nullptr;
  void* context_ = nullptr;
  void* fake_stack_ = nullptr;
  [[maybe_unused]] void* tsan_fiber_ = nullptr;
};

// Fibres are reused: creating a stack costs two system calls.
class FiberPool {
 public:
  Fiber* At(size_t index);
  // Frees all stacks, with the suspended frames on them. Their work is released to `token`.
  void Drop(char* token);

 private:
  std::vector<std::unique_ptr<Fiber>> fibers_;
};

}  // namespace vitrine::emu
