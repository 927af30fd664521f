#include "kernels/cpu/thread_pool.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "kernels/cpu/float_mode.h"

namespace vitrine::cpu {
namespace {

// About 30 microseconds of PAUSE on current cores: longer than the imbalance of a phase, shorter
// than a scheduler tick.
constexpr int kSpins = 2000;

void FutexWait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr,
          nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
          nullptr, 0);
}

void PauseCpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Binds the calling thread to the `index`-th of the allowed cores.
void Pin(const cpu_set_t& allowed, int index) {
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || index-- > 0) continue;
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(core, &only);
    sched_setaffinity(0, sizeof(only), &only);  // A refusal only costs speed.
    return;
  }
}

}  // namespace

void SpinThenSleepEvent::Advance() {
  // Sequentially consistent against the increment of sleepers_: either the sleeper sees the new
  // word or we see the sleeper.
  word_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) FutexWakeAll(word_);
}

void SpinThenSleepEvent::WaitPast(uint32_t seen, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (current() != seen) return;
    PauseCpu();
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (word_.load(std::memory_order_seq_cst) == seen) FutexWait(word_, seen);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

int ThreadPool::AllowedCores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  return std::max(1, CPU_COUNT(&allowed));
}

ThreadPool::ThreadPool(int workers)
    : workers_(workers), cursors_(std::make_unique<Cursor[]>(static_cast<size_t>(workers))) {
  CPU_ZERO(&allowed_);
  const bool known = sched_getaffinity(0, sizeof(allowed_), &allowed_) == 0;
  const bool enough = known && CPU_COUNT(&allowed_) >= workers;
  pinned_ = enough && workers > 1;
  // A worker that shares its core must give it up for the others to arrive.
  spins_ = enough ? kSpins : 0;
  for (int w = 1; w < workers; ++w) threads_.emplace_back([this, w] { WorkerLoop(w); });
}

ThreadPool::~ThreadPool() {
  job_ = nullptr;
  dispatch_.Advance();
  for (auto& thread : threads_) thread.join();
}

void ThreadPool::Run(Job job, void* context) {
  cpu_set_t before;
  CPU_ZERO(&before);
  const bool pin = pinned_ && sched_getaffinity(0, sizeof(before), &before) == 0;
  if (pin) Pin(allowed_, 0);
  {
    const FlushDenormals flush;
    job_ = job;
    context_ = context;
    dispatch_.Advance();
    job(context, 0);
    Barrier();
  }
  if (pin) sched_setaffinity(0, sizeof(before), &before);
}

void ThreadPool::WorkerLoop(int worker) {
  if (pinned_) Pin(allowed_, worker);
  const FlushDenormals flush;
  // Advance is called exactly once per job, so counting jobs cannot miss one that was posted
  // before this thread started.
  for (uint32_t seen = 0;; ++seen) {
    dispatch_.WaitPast(seen, spins_);
    if (job_ == nullptr) return;
    job_(context_, worker);
    Barrier();
  }
}

void ThreadPool::Barrier() {
  const uint32_t phase = barrier_.current();
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < workers_) {
    barrier_.WaitPast(phase, spins_);
    return;
  }
  // Last to arrive: nobody is in ForEach any more, so the cursors can be reset.
  for (int w = 0; w < workers_; ++w) cursors_[w].next.store(0, std::memory_order_relaxed);
  arrived_.store(0, std::memory_order_relaxed);
  barrier_.Advance();
}

}  // namespace vitrine::cpu
