// A pool that runs a whole step per dispatch.
//
// Inside a dispatch all workers execute the same function and meet at barriers. Waiting spins for a
// few tens of microseconds (phases of a small model are shorter than a futex round trip) and then
// sleeps, so that neither an idle process nor a worker that lost its core burns what other threads
// need.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace vitrine::cpu {

// Wait until a counter has moved on: spin, then futex.
class SpinThenSleepEvent {
 public:
  uint32_t current() const { return word_.load(std::memory_order_acquire); }
  void Advance();
  void WaitPast(uint32_t seen, int spins);

 private:
  alignas(64) std::atomic<uint32_t> word_{0};
  alignas(64) std::atomic<int> sleepers_{0};
};

// One thread at a time may call Run; it need not be the same every time.
class ThreadPool {
 public:
  using Job = void (*)(void* context, int worker);

  // Cores that the calling thread may run on, at least 1.
  static int AllowedCores();

  // The caller of Run is worker 0; `workers - 1` threads are started. Where there are enough
  // allowed cores, every worker is bound to one of its own: two spinning workers on one core would
  // each burn their time slice waiting for the other.
  explicit ThreadPool(int workers);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int workers() const { return workers_; }

  // Runs job(context, worker) on every worker and returns when all have finished. Inside, denormal
  // numbers are zero. The caller's affinity and floating-point mode are restored.
  void Run(Job job, void* context);

  // Only inside Run, by all workers alike. Also ends the current ForEach.
  void Barrier();

  // Only inside Run, once between two barriers. Calls body(i) for every i in [0, count), each on
  // one worker. A worker owns a contiguous range and walks it in order, because a sequential stream
  // per core is what DRAM and the prefetchers like best; whoever is done early takes `grain` items
  // at a time from the others. Who computes an item never changes its result.
  template <class Body>
  void ForEach(int worker, int64_t count, int64_t grain, Body&& body) {
    WalkRanges(worker, count, [grain](int64_t /*left*/, bool /*own*/) { return grain; }, body);
  }

  // The same for items that cost about the same: a worker takes half of what is left of its own
  // range at a time, because every taking waits until all earlier stores have reached the cache.
  template <class Body>
  void ForEachEven(int worker, int64_t count, Body&& body) {
    WalkRanges(
        worker, count,
        [](int64_t left, bool own) { return own && left > 2 ? left / 2 : int64_t{1}; }, body);
  }

  // First item of the range that `worker` owns.
  int64_t RangeBegin(int worker, int64_t count) const { return count * worker / workers_; }

 private:
  struct alignas(64) Cursor {
    std::atomic<int64_t> next{0};
  };

  // take(items left in the range, whether the range is the worker's own): how many to take.
  template <class Take, class Body>
  void WalkRanges(int worker, int64_t count, Take&& take, Body&& body) {
    for (int i = 0; i < workers_; ++i) {
      const int owner = worker + i < workers_ ? worker + i : worker + i - workers_;
      const int64_t first = RangeBegin(owner, count);
      const int64_t end = RangeBegin(owner + 1, count);
      std::atomic<int64_t>& next = cursors_[owner].next;
      for (;;) {
        const int64_t left = end - first - next.load(std::memory_order_relaxed);
        if (left <= 0) break;
        const int64_t taken = take(left, i == 0);
        const int64_t begin = first + next.fetch_add(taken, std::memory_order_relaxed);
        const int64_t stop = std::min(begin + taken, end);
        for (int64_t item = begin; item < stop; ++item) body(item);
      }
    }
  }

  void WorkerLoop(int worker);

  const int workers_;
  int spins_;
  bool pinned_;
  cpu_set_t allowed_;
  std::unique_ptr<Cursor[]> cursors_;
  alignas(64) std::atomic<int> arrived_{0};
  SpinThenSleepEvent barrier_;
  SpinThenSleepEvent dispatch_;
  Job job_ = nullptr;
  void* context_ = nullptr;
  std::vector<std::thread> threads_;
};

}  // namespace vitrine::cpu
