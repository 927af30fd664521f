#include "cuda_emulator/fiber.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace vitrine::emu {
namespace {

std::vector<int>* trace = nullptr;

// Entry functions must not leave C++ objects with destructors behind when they suspend forever.
void AppendTwice() {
  Fiber::FinishFirstSwitch();
  trace->push_back(1);
  Fiber::Suspend();
  trace->push_back(2);
  Fiber::SuspendForever();
}

class FiberTest : public ::testing::Test {
 protected:
  void SetUp() override { trace = &trace_; }
  std::vector<int> trace_;
};

TEST_F(FiberTest, RunsUntilItSuspends) {
  Fiber f;
  f.Start(&AppendTwice);
  trace_.push_back(0);
  f.Resume();
  trace_.push_back(10);
  f.Resume();
  EXPECT_EQ(trace_, (std::vector<int>{0, 1, 10, 2}));
}

TEST_F(FiberTest, InterleavesWithOthers) {
  Fiber a, b;
  a.Start(&AppendTwice);
  b.Start(&AppendTwice);
  a.Resume();
  b.Resume();
  b.Resume();
  a.Resume();
  EXPECT_EQ(trace_, (std::vector<int>{1, 1, 2, 2}));
}

TEST_F(FiberTest, StartAbandonsAnUnfinishedRun) {
  Fiber f;
  for (int i = 0; i < 3; ++i) {
    f.Start(&AppendTwice);
    f.Resume();
  }
  EXPECT_EQ(trace_, (std::vector<int>{1, 1, 1}));
}

TEST_F(FiberTest, CurrentIsNullOutside) {
  static Fiber* seen = nullptr;
  Fiber f;
  f.Start([] {
    Fiber::FinishFirstSwitch();
    seen = Fiber::Current();
    Fiber::SuspendForever();
  });
  EXPECT_EQ(Fiber::Current(), nullptr);
  f.Resume();
  EXPECT_EQ(seen, &f);
  EXPECT_EQ(Fiber::Current(), nullptr);
}

TEST_F(FiberTest, ExceptionsUnwindWithinAFiber) {
  Fiber f;
  f.Start([] {
    Fiber::FinishFirstSwitch();
    try {
      throw std::runtime_error("inside");
    } catch (const std::exception&) {
      trace->push_back(5);
    }
    Fiber::SuspendForever();
  });
  f.Resume();
  EXPECT_EQ(trace_, std::vector<int>{5});
}

TEST_F(FiberTest, KeepsItsStackAcrossSwitches) {
  Fiber f;
  f.Start([] {
    Fiber::FinishFirstSwitch();
    volatile int local[1000];
    for (int i = 0; i < 1000; ++i) local[i] = i;
    Fiber::Suspend();
    int sum = 0;
    for (int i = 0; i < 1000; ++i) sum += local[i];
    trace->push_back(sum);
    Fiber::SuspendForever();
  });
  f.Resume();
  f.Resume();
  EXPECT_EQ(trace_, std::vector<int>{499500});
}

TEST_F(FiberTest, PoolReusesAndDrops) {
  FiberPool pool;
  Fiber* const first = pool.At(3);
  EXPECT_EQ(pool.At(3), first);
  EXPECT_NE(pool.At(0), first);
  char token = 0;
  pool.Drop(&token);
  pool.At(3)->Start(&AppendTwice);
  pool.At(3)->Resume();
  EXPECT_EQ(trace_, std::vector<int>{1});
}

}  // namespace
}  // namespace vitrine::emu
