#include "cuda_emulator/block.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>

#include "cuda_emulator/async_copy.h"
#include "cuda_emulator/collectives.h"
#include "cuda_emulator/device_variables.h"
#include "cuda_emulator/sanitizer.h"

namespace vitrine::emu {
namespace {

// A warp that lags is picked when so many draws in a row give one of its threads.
constexpr int kLaggardDraws = 8;

thread_local Thread* current_thread = nullptr;
char start_token = 0, end_token = 0;

std::string ToString(uint3 v) {
  return "(" + std::to_string(v.x) + "," + std::to_string(v.y) + "," + std::to_string(v.z) + ")";
}

unsigned InOrder(unsigned i, size_t n) {
  return options().order == Order::kReverse ? static_cast<unsigned>(n) - 1 - i : i;
}

}  // namespace

TokenPair::TokenPair() {
  static char pool[1 << 16];
  static unsigned next = 0;
  for (char*& token : token_) token = &pool[next++ % sizeof pool];
}

std::string Name(const Thread& thread) { return "thread " + ToString(thread.id); }

Block& CurrentBlock() {
  // Never destroyed: fibres of a stopped kernel may outlive main.
  static Block* const block = new Block;
  return *block;
}
Thread* CurrentThread() { return current_thread; }
char* StartToken() { return &start_token; }
char* EndToken() { return &end_token; }

void Block::MakeReady(Thread* thread) {
  thread->state = State::kReady;
  ready_.push_back(thread);
}

void Block::Suspend() {
  TsanIgnoreEnd();  // never leave a fibre suspended with ignores on: it may not come back
  Fiber::Suspend();
  TsanIgnoreBegin();
}

void Block::TryBarrier() {
  if (barrier_.arrived == 0 || barrier_.arrived < live_) return;
  barrier_.result = barrier_.vote;
  barrier_.arrived = 0;
  barrier_.tokens.Advance();
  const Thread* first = nullptr;
  for (unsigned i = 0; i < threads_.size(); ++i) {
    Thread& t = threads_[InOrder(i, threads_.size())];
    if (t.state != State::kBarrierWait) continue;
    if (first != nullptr && (t.wait.site.line != first->wait.site.line ||
                             strcmp(t.wait.site.file, first->wait.site.file) != 0)) {
      Fail("__syncthreads() in divergent code: " + Name(*first) + " at " +
           ToString(first->wait.site) + ", " + Name(t) + " at " + ToString(t.wait.site));
    }
    if (first == nullptr) first = &t;
    MakeReady(&t);
  }
}

void Block::Exit(Thread* thread) {
  FinishAsyncCopies(thread);
  TsanIgnore ignore;
  if (check_dependency_wait && !thread->dependency_waited) {
    Fail("launched with overlap_previous, but a thread returned without gpu::WaitForPrevious()");
  }
  thread->state = State::kDone;
  Warp& warp = *thread->warp;
  warp.live &= ~(1u << thread->lane);
  warp.exited |= 1u << thread->lane;
  --live_;
  for (Thread* other : warp.lane) {
    if (other == nullptr || other->state != State::kWarpWait) continue;
    if (options().strict_masks && (other->wait.mask >> thread->lane & 1)) {
      Fail("thread returns while " + Name(*other) + " waits for it in " + other->wait.what,
           other->wait.site);
    }
    TryWarp(other);
  }
  TryBarrier();
}

EMU_NO_TSAN EMU_NO_MSAN __attribute__((no_sanitize("address"), noinline)) void Block::Entry() {
  Fiber::FinishFirstSwitch();
  Block& block = CurrentBlock();
  __tsan_acquire(StartToken());
  try {
    (*block.body_)();
    block.Exit(CurrentThread());
  } catch (const std::exception& e) {  // from Fail(): unwound within this fibre
    if (block.error_.empty()) block.error_ = e.what();
  }
  __tsan_release(EndToken());
  Fiber::SuspendForever();
}

void Block::StartThread(unsigned index, dim3 size, Fiber* fiber) {
  Thread& t = threads_[index];
  t.fiber = fiber;
  t.lane = index % 32;
  t.warp = &warps_[index / 32];
  t.id = {index % size.x, index / size.x % size.y, index / (size.x * size.y)};
  t.warp->lane[t.lane] = &t;
  t.warp->live |= 1u << t.lane;
  fiber->Start(&Block::Entry);
}

void Block::Prepare(dim3 size) {
  const unsigned n = size.x * size.y * size.z;
  warps_ = std::vector<Warp>((n + 31) / 32);
  threads_ = std::vector<Thread>(n);
  barrier_ = {};
  ready_.clear();
  ready_head_ = 0;
  live_ = static_cast<int>(n);
  error_.clear();
  // TSan: a reused fibre is ordered after all it did before, so neighbouring blocks take
  // different fibres, or races between blocks would hide behind that order.
  const unsigned shift = static_cast<unsigned>(Random(n));
#if defined(EMU_TSAN)
  const unsigned set = 1024 * static_cast<unsigned>(stats().blocks % 2);
#else
  const unsigned set = 0;
#endif
  for (unsigned i = 0; i < n; ++i) StartThread(i, size, pool_.At(set + (i + shift) % n));
  for (unsigned i = 0; i < n; ++i) MakeReady(&threads_[InOrder(i, n)]);
  laggard_ = Random(2) == 0 ? nullptr : &warps_[Random(warps_.size())];
}

Thread* Block::PickReady() {
  if (options().order == Order::kRandom) {
    size_t pick = 0;
    for (int draw = 0; draw < kLaggardDraws; ++draw) {
      pick = ready_head_ + Random(ready_.size() - ready_head_);
      if (ready_[pick]->warp != laggard_) break;
    }
    std::swap(ready_[ready_head_], ready_[pick]);
  }
  Thread* const t = ready_[ready_head_++];
  if (ready_head_ == ready_.size()) {
    ready_.clear();
    ready_head_ = 0;
  }
  return t;
}

EMU_NO_MSAN void Block::Run(dim3 size, const std::function<void()>& body) {
  body_ = &body;
  Prepare(size);
  while (live_ > 0) {
    if (ready_head_ == ready_.size()) throw std::runtime_error("emu: " + DescribeDeadlock());
    Thread* const t = PickReady();
    current_thread = t;
    threadIdx = t->id;
    ++stats().switches;
    t->fiber->Resume();
    current_thread = nullptr;
    if (!error_.empty()) throw std::runtime_error("emu: " + error_);
  }
}

void Block::DropThreads() { pool_.Drop(EndToken()); }

std::string Block::DescribeDeadlock() const {
  std::map<std::string, std::pair<int, std::string>> places;
  for (const Thread& t : threads_) {
    if (t.state == State::kDone) continue;
    auto& [count, first] = places[std::string(t.wait.what) + " at " + ToString(t.wait.site)];
    if (count++ == 0) first = Name(t);
  }
  std::string text = "deadlock in block " + ToString(blockIdx) + ", " +
                     std::to_string(static_cast<int>(threads_.size()) - live_) + " threads done:";
  for (const auto& [place, who] : places) {
    text += "\n  " + std::to_string(who.first) + " wait in " + place + ", first " + who.second;
  }
  return text;
}

}  // namespace vitrine::emu
