#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "kernels/cpu/thread_pool.h"

namespace vitrine::cpu {
namespace {

template <class Body>
void RunOn(ThreadPool& pool, Body body) {
  pool.Run([](void* context, int worker) { (*static_cast<Body*>(context))(worker); }, &body);
}

TEST(ThreadPoolTest, EveryItemRunsOnceInEveryPhase) {
  constexpr int kPhases = 50;
  for (const int workers : {1, 2, 3, 7}) {
    ThreadPool pool(workers);
    for (const int count : {0, 1, 2, 6, 97}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
      RunOn(pool, [&](int worker) {
        for (int phase = 0; phase < kPhases; ++phase) {
          pool.ForEach(worker, count, 1 + phase % 4, [&](int64_t item) {
            // Everyone is through with the phase before.
            EXPECT_EQ(runs[static_cast<size_t>(item)].fetch_add(1), phase);
          });
          pool.Barrier();
        }
      });
      for (const std::atomic<int>& n : runs) EXPECT_EQ(n.load(), kPhases);
    }
  }
}

TEST(ThreadPoolTest, PlainMemoryIsVisibleBehindABarrier) {
  ThreadPool pool(3);
  std::vector<int> values(300);
  int sum = 0;
  RunOn(pool, [&](int worker) {
    pool.ForEach(worker, 300, 7,
                 [&](int64_t i) { values[static_cast<size_t>(i)] = static_cast<int>(i); });
    pool.Barrier();
    if (worker != 2) return;
    for (const int value : values) sum += value;
  });
  EXPECT_EQ(sum, 300 * 299 / 2);
}

TEST(ThreadPoolTest, AnyThreadMayRunAJob) {
  ThreadPool pool(2);
  std::atomic<int> runs{0};
  for (int i = 0; i < 4; ++i) {
    std::thread([&] { RunOn(pool, [&](int) { ++runs; }); }).join();
  }
  EXPECT_EQ(runs.load(), 8);
}

TEST(ThreadPoolTest, SleepingWorkersWakeUp) {
  ThreadPool pool(2);
  std::atomic<int> runs{0};
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    RunOn(pool, [&](int worker) {
      if (worker == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      pool.Barrier();
      ++runs;
    });
  }
  EXPECT_EQ(runs.load(), 6);
}

TEST(ThreadPoolTest, DenormalsAreZeroInsideOnly) {
  volatile float tiny = 1e-39f;
  ThreadPool pool(2);
  RunOn(pool, [&](int) { EXPECT_EQ(tiny * 1.0f, 0.0f); });
  EXPECT_NE(tiny * 1.0f, 0.0f);
}

TEST(ThreadPoolTest, CallerKeepsItsAffinity) {
  cpu_set_t before;
  CPU_ZERO(&before);
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  ThreadPool pool(2);
  RunOn(pool, [](int) {});
  cpu_set_t after;
  CPU_ZERO(&after);
  ASSERT_EQ(sched_getaffinity(0, sizeof(after), &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

}  // namespace
}  // namespace vitrine::cpu
