#include "cuda_emulator/collectives.h"

#include <set>
#include <vector>

#include "cuda_emulator/run_kernel.h"

namespace vitrine::emu {
namespace {

TEST(BlockBarrierTest, SeparatesPhases) {
  std::vector<int> arrived(3, 0);
  bool early = false;
  RunKernel(1, 96, [&] {
    for (int phase = 0; phase < 3; ++phase) {
      ++arrived[phase];
      __syncthreads();
      early = early || arrived[phase] != 96;
    }
  });
  EXPECT_FALSE(early);
}

TEST(BlockBarrierTest, Votes) {
  int any = -1, all = -1, count = -1;
  RunKernel(1, 64, [&] {
    any = __syncthreads_or(threadIdx.x == 5);
    all = __syncthreads_and(threadIdx.x != 5);
    count = __syncthreads_count(threadIdx.x % 3 == 0);
  });
  EXPECT_EQ(any, 1);
  EXPECT_EQ(all, 0);
  EXPECT_EQ(count, 22);
}

TEST(BlockBarrierTest, ExcusesThreadsThatReturned) {
  int after = 0;
  RunKernel(1, 64, [&] {
    if (threadIdx.x >= 32) return;
    __syncthreads();
    ++after;
  });
  EXPECT_EQ(after, 32);
}

TEST(BlockBarrierTest, StopsOnDivergence) {
  const auto diverge = [] {  // outside the macro, which would put both on one line
    if (threadIdx.x % 2 == 0) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  };
  EXPECT_STOPS(64, "divergent code", diverge);
}

TEST(BlockBarrierTest, StopsOnDeadlockAndNamesThePlaces) {
  const std::string text = StopMessage(64, [] {
    if (threadIdx.x < 32) {
      __syncthreads();
    } else if (threadIdx.x % 2 == 0) {
      __syncwarp(0x3u << (threadIdx.x % 32));  // waits for an odd lane that waits elsewhere
    } else {
      __syncthreads();
    }
  });
  EXPECT_NE(text.find("deadlock"), std::string::npos) << text;
  EXPECT_NE(text.find("16 wait in __syncwarp"), std::string::npos) << text;
  EXPECT_NE(text.find("collectives_test.cc"), std::string::npos) << text;
}

TEST(BlockBarrierTest, NextLaunchWorksAfterAStop) {
  EXPECT_NE(StopMessage(64, [] { Fail("planted"); }), "");
  EXPECT_EQ(StopMessage(64, [] { __syncthreads(); }), "");
}

TEST(WarpBarrierTest, WaitsForItsMaskOnly) {
  std::vector<int> order;
  RunKernel(1, 32, [&] {
    if (threadIdx.x < 16) {
      __syncwarp(0xffffu);
    } else {
      __syncwarp(0xffff0000u);
    }
    order.push_back(static_cast<int>(threadIdx.x));
  });
  EXPECT_EQ(order.size(), 32u);
}

TEST(WarpCollectiveTest, StopsWhenTheCallerIsNotInItsMask) {
  EXPECT_STOPS(32, "not in its own mask", [] {
    if (threadIdx.x == 3) __syncwarp(0x1u);
  });
}

TEST(WarpCollectiveTest, StopsWhenTheMaskNamesALaneThatReturned) {
  EXPECT_STOPS(32, "return", [] {
    if (threadIdx.x == 3) return;
    __syncwarp();
  });
}

TEST(WarpCollectiveTest, LenientMasksExcuseLanesThatReturned) {
  const ScopedOptions restore;
  options().strict_masks = false;
  EXPECT_EQ(StopMessage(32,
                        [] {
                          if (threadIdx.x == 3) return;
                          __syncwarp();
                        }),
            "");
}

TEST(WarpCollectiveTest, StopsWhenLanesMeetInDifferentCollectives) {
  EXPECT_STOPS(32, "different collectives", [] {
    if (threadIdx.x % 2 == 0) {
      __ballot_sync(~0u, 1);
    } else {
      __shfl_sync(~0u, 1, 0);
    }
  });
}

TEST(WarpCollectiveTest, StopsOutsideAKernel) {
  EXPECT_NE(StopReason([] { __syncwarp(); }), "");
  EXPECT_NE(StopReason([] { __syncthreads(); }), "");
  EXPECT_NE(StopReason([] { __ballot_sync(1, 1); }), "");
}

std::vector<unsigned> RunOrder(Order order, uint64_t seed) {
  const ScopedOptions restore;
  options().order = order;
  Seed(seed);
  std::vector<unsigned> seen;
  RunKernel(2, 64, [&] { seen.push_back(blockIdx.x * 64 + threadIdx.x); });
  return seen;
}

TEST(OrderTest, ForwardAndReverseAreSorted) {
  const auto forward = RunOrder(Order::kForward, 1), reverse = RunOrder(Order::kReverse, 1);
  EXPECT_TRUE(std::is_sorted(forward.begin(), forward.end()));
  EXPECT_TRUE(std::is_sorted(reverse.rbegin(), reverse.rend()));
}

TEST(OrderTest, RandomDependsOnTheSeedOnly) {
  EXPECT_EQ(RunOrder(Order::kRandom, 7), RunOrder(Order::kRandom, 7));
  EXPECT_NE(RunOrder(Order::kRandom, 7), RunOrder(Order::kRandom, 8));
  const auto seen = RunOrder(Order::kRandom, 7);
  EXPECT_EQ(std::set<unsigned>(seen.begin(), seen.end()).size(), 128u);
}

// What a missing barrier between warps needs to show: one at its end, the other at its beginning.
TEST(OrderTest, RandomLetsEitherWarpFallFarBehind) {
  constexpr int kSteps = 50;
  bool fell_behind[2] = {};
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Seed(seed);
    int steps[2] = {};
    RunKernel(1, 64, [&] {
      const unsigned warp = threadIdx.x / 32;
      for (int i = 0; i < kSteps; ++i) {
        __syncwarp();
        steps[warp] = i;
      }
      if (steps[1 - warp] < kSteps / 5) fell_behind[1 - warp] = true;
    });
  }
  EXPECT_TRUE(fell_behind[0]);
  EXPECT_TRUE(fell_behind[1]);
}

TEST(YieldTest, LetsOthersRun) {
  bool flag = false;
  RunKernel(1, 2, [&] {
    if (threadIdx.x == 0) {
      while (!flag) __nanosleep(10);
    } else {
      flag = true;
    }
  });
  EXPECT_TRUE(flag);
}

}  // namespace
}  // namespace vitrine::emu
