// One thread block: its CUDA threads, who is ready to run, who waits for what.
#pragma once
#include <vector_types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda_emulator/fiber.h"
#include "cuda_emulator/options.h"
#include "cuda_emulator/stop.h"

namespace vitrine::emu {

// Computes the results of every lane in `lanes`; args[i] is what lane i passed.
using CollectiveFn = void (*)(unsigned lanes, void* const* args);

// Two happens-before tokens for TSan, used in turn: a lane still leaving one barrier must not
// acquire what a faster lane releases on arriving at the next. Each block takes new ones,
// because two blocks never meet.
class TokenPair {
 public:
  TokenPair();
  char* Now() const { return token_[generation_ % 2]; }
  void Advance() { ++generation_; }

 private:
  unsigned generation_ = 0;
  char* token_[2];
};

struct WarpMeeting {  // __syncwarp of one mask
  unsigned mask = 0;
  TokenPair tokens;
};

struct Thread;
struct Warp {
  Thread* lane[32] = {};
  unsigned live = 0, exited = 0;
  std::vector<std::unique_ptr<WarpMeeting>> meetings;  // addresses must stay
};

// What a waiting thread waits for.
struct Wait {
  const char* what = "";
  Site site{"", 0};
  unsigned mask = 0;
  void* args = nullptr;
  CollectiveFn fn = nullptr;
  WarpMeeting* meeting = nullptr;
};

struct AsyncCopy {
  void* dst;
  const void* src;
  bool valid;
};

enum class State { kReady, kWarpWait, kBarrierWait, kDone };

struct Thread {
  Fiber* fiber = nullptr;
  uint3 id{};
  unsigned lane = 0;
  Warp* warp = nullptr;
  State state = State::kDone;
  Wait wait;
  bool fenced = false;          // has executed a __threadfence
  std::vector<void*> unfenced;  // atomics seen since the last one
  std::vector<AsyncCopy> open;  // cp.async not yet committed to a group
  std::vector<std::vector<AsyncCopy>> groups;
  bool dependency_waited = false;  // has executed griddepcontrol.wait
};
std::string Name(const Thread& thread);

struct Vote {
  bool any = false, all = true;
  int count = 0;
};
struct Barrier {
  int arrived = 0;
  Vote vote, result;
  TokenPair tokens;
};

// The block being executed. One at a time, on the launching OS thread.
class Block {
 public:
  // Runs all threads of one block of size `size`. Throws when the kernel was stopped.
  void Run(dim3 size, const std::function<void()>& body);
  // After a stop: frees the stacks that hold suspended kernel frames.
  void DropThreads();

  void MakeReady(Thread* thread);
  // Lets other threads run until somebody makes the calling thread ready again.
  void Suspend();
  // Completes the barrier if all live threads have arrived.
  void TryBarrier();
  Barrier& barrier() { return barrier_; }
  int live() const { return live_; }
  bool check_dependency_wait = false;  // launched with overlap: every thread must wait

 private:
  static void Entry();
  void Prepare(dim3 size);
  void StartThread(unsigned index, dim3 size, Fiber* fiber);
  void Exit(Thread* thread);
  Thread* PickReady();
  std::string DescribeDeadlock() const;

  FiberPool pool_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<Thread*> ready_;
  size_t ready_head_ = 0;
  // Random order: a warp that falls far behind the others, in every second block. Steps of equal
  // probability keep warps so close together that a missing barrier may never show.
  Warp* laggard_ = nullptr;
  Barrier barrier_;
  int live_ = 0;
  const std::function<void()>* body_ = nullptr;
  std::string error_;
};

Block& CurrentBlock();
Thread* CurrentThread();  // null in host code
// TSan: what the host did before a launch, and what it may read after it.
char* StartToken();
char* EndToken();

}  // namespace vitrine::emu
