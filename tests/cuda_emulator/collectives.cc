#include "cuda_emulator/collectives.h"

#include <cstring>
#include <memory>
#include <string>

#include "cuda_emulator/sanitizer.h"

namespace vitrine::emu {
namespace {

[[noreturn]] void FailDifferent(const Thread& a, const Thread& b) {
  Fail("lanes of one mask meet in different collectives: " + Name(a) + " in " + a.wait.what +
       " at " + ToString(a.wait.site) + ", " + Name(b) + " in " + b.wait.what + " at " +
       ToString(b.wait.site));
}

void Rendezvous(const Wait& wait) {
  Thread* const self = CurrentThread();
  if (self == nullptr) Fail(std::string(wait.what) + " outside a kernel", wait.site);
  ++stats().collectives;
  if (!(wait.mask >> self->lane & 1)) {
    Fail(std::string(wait.what) + ": calling lane is not in its own mask", wait.site);
  }
  if (options().strict_masks && (wait.mask & self->warp->exited)) {
    Fail(std::string(wait.what) + ": mask names a lane that has returned", wait.site);
  }
  self->wait = wait;
  self->state = State::kWarpWait;
  TryWarp(self);
  CurrentBlock().Suspend();  // even when complete: who goes on first is the scheduler's choice
}

WarpMeeting* FindMeeting(Warp* warp, unsigned mask) {
  for (const auto& m : warp->meetings) {
    if (m->mask == mask) return m.get();
  }
  warp->meetings.push_back(std::make_unique<WarpMeeting>());
  warp->meetings.back()->mask = mask;
  return warp->meetings.back().get();
}

}  // namespace

void TryWarp(Thread* thread) {
  const Wait& wait = thread->wait;
  const unsigned needed = wait.mask & thread->warp->live;
  void* args[32] = {};
  for (int i = 0; i < 32; ++i) {
    if (!(needed >> i & 1)) continue;
    const Thread& other = *thread->warp->lane[i];
    if (other.state != State::kWarpWait || other.wait.mask != wait.mask) return;
    if (other.wait.fn != wait.fn || strcmp(other.wait.what, wait.what) != 0) {
      FailDifferent(*thread, other);
    }
    args[i] = other.wait.args;
  }
  if (wait.fn != nullptr) wait.fn(needed, args);
  if (wait.meeting != nullptr) wait.meeting->tokens.Advance();
  for (int i = 0; i < 32; ++i) {
    const int lane = options().order == Order::kReverse ? 31 - i : i;
    if (needed >> lane & 1) CurrentBlock().MakeReady(thread->warp->lane[lane]);
  }
}

void WarpCollective(const char* name, unsigned mask, void* args, CollectiveFn fn, Site site) {
  TsanIgnore ignore;
  Rendezvous({name, site, mask, args, fn, nullptr});
}

void WarpBarrier(unsigned mask, Site site) {
  TsanIgnore ignore;
  if (CurrentThread() == nullptr) Fail("__syncwarp outside a kernel", site);
  WarpMeeting* const meeting = FindMeeting(CurrentThread()->warp, mask);
  char* const token = meeting->tokens.Now();
  __tsan_release(token);
  Rendezvous({"__syncwarp", site, mask, nullptr, nullptr, meeting});
  __tsan_acquire(token);
}

Vote BlockBarrier(bool predicate, Site site) {
  TsanIgnore ignore;
  Thread* const self = CurrentThread();
  if (self == nullptr) Fail("__syncthreads outside a kernel", site);
  Barrier& b = CurrentBlock().barrier();
  if (b.arrived++ == 0) b.vote = {};
  b.vote = {b.vote.any || predicate, b.vote.all && predicate, b.vote.count + predicate};
  self->wait = {"__syncthreads", site, 0, nullptr, nullptr, nullptr};
  self->state = State::kBarrierWait;
  char* const token = b.tokens.Now();
  __tsan_release(token);
  CurrentBlock().TryBarrier();
  CurrentBlock().Suspend();
  __tsan_acquire(token);
  return b.result;
}

void Yield() {
  TsanIgnore ignore;
  CurrentBlock().MakeReady(CurrentThread());
  CurrentBlock().Suspend();
}

void NoteDependencyWait() { CurrentThread()->dependency_waited = true; }
unsigned LaneId() { return CurrentThread()->lane; }
unsigned LiveMask() { return CurrentThread()->warp->live; }

}  // namespace vitrine::emu
