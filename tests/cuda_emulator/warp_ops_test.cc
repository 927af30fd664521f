#include "cuda_emulator/warp_ops.h"

#include <array>
#include <cmath>

#include "cuda_emulator/run_kernel.h"
#include "kernels/cuda/reduce.h"

namespace vitrine::emu {
namespace {

template <class T>
using Lanes = std::array<T, 32>;

template <class T, class F>
Lanes<T> OnWarp(F f) {
  Lanes<T> out{};
  RunKernel(1, 32, [&] { out[threadIdx.x] = f(static_cast<int>(threadIdx.x)); });
  return out;
}

TEST(ShuffleTest, Indexed) {
  const auto out = OnWarp<int>([](int lane) { return __shfl_sync(~0u, lane * 10, (lane + 5)); });
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], (i + 5) % 32 * 10);
}

TEST(ShuffleTest, IndexedWithinSegments) {
  const auto out = OnWarp<int>([](int lane) { return __shfl_sync(~0u, lane, 1, 8); });
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], i / 8 * 8 + 1);
}

TEST(ShuffleTest, XorUpAndDown) {
  const auto x = OnWarp<int>([](int lane) { return __shfl_xor_sync(~0u, lane, 3); });
  const auto up = OnWarp<int>([](int lane) { return __shfl_up_sync(~0u, lane, 4, 16); });
  const auto down = OnWarp<int>([](int lane) { return __shfl_down_sync(~0u, lane, 4, 16); });
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(x[i], i ^ 3);
    EXPECT_EQ(up[i], i % 16 < 4 ? i : i - 4);
    EXPECT_EQ(down[i], i % 16 >= 12 ? i : i + 4);
  }
}

TEST(ShuffleTest, CarriesEightByteAndSmallTypes) {
  const auto d = OnWarp<double>([](int lane) { return __shfl_xor_sync(~0u, lane + 0.5, 1); });
  EXPECT_EQ(d[6], 7.5);
  const auto h = OnWarp<float>([](int lane) {
    return __bfloat162float(__shfl_xor_sync(~0u, __float2bfloat16(static_cast<float>(lane)), 1));
  });
  EXPECT_EQ(h[6], 7.0f);
}

TEST(ShuffleTest, ReadingALaneOutsideTheMaskGivesPoison) {
  float out = 0;
  RunKernel(1, 32, [&] {
    if (threadIdx.x >= 16) return;
    const float v = __shfl_sync(0xffffu, 1.0f, 20);
    if (threadIdx.x == 0) out = v;
  });
  EXPECT_TRUE(std::isnan(out));
}

TEST(VoteTest, BallotAnyAll) {
  const auto b = OnWarp<unsigned>([](int lane) { return __ballot_sync(~0u, lane % 4 == 1); });
  const auto any = OnWarp<int>([](int lane) { return __any_sync(~0u, lane == 31); });
  const auto all = OnWarp<int>([](int lane) { return __all_sync(~0u, lane < 31); });
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(b[i], 0x22222222u);
    EXPECT_EQ(any[i], 1);
    EXPECT_EQ(all[i], 0);
  }
}

TEST(VoteTest, PartialMask) {
  unsigned bits = 0;
  RunKernel(1, 32, [&] {
    if (threadIdx.x % 2 == 0) bits = __ballot_sync(0x55555555u, threadIdx.x >= 16);
  });
  EXPECT_EQ(bits, 0x55550000u);
}

TEST(ReduceTest, IntegerFormsOfTheHardware) {
  const auto sum =
      OnWarp<unsigned>([](int lane) { return __reduce_add_sync(~0u, unsigned(lane)); });
  const auto top =
      OnWarp<unsigned>([](int lane) { return __reduce_max_sync(~0u, unsigned(lane)); });
  const auto low = OnWarp<unsigned>([](int lane) { return __reduce_min_sync(~0u, lane + 3u); });
  EXPECT_EQ(sum[9], 496u);
  EXPECT_EQ(top[9], 31u);
  EXPECT_EQ(low[9], 3u);
}

// The one-collective form must have the very bits of the shuffle sequence it replaces.
TEST(ReduceTest, HasTheBitsOfTheButterfly) {
  const auto value = [](int lane) { return std::sin(static_cast<float>(lane) * 1.7f) * 1e3f; };
  const auto one = OnWarp<float>([&](int lane) { return gpu::WarpSum(value(lane)); });
  const auto five =
      OnWarp<float>([&](int lane) { return gpu::WarpReduceByShuffles<gpu::Sum>(value(lane)); });
  const auto top = OnWarp<float>([&](int lane) { return gpu::WarpMax(value(lane)); });
  const auto top5 =
      OnWarp<float>([&](int lane) { return gpu::WarpReduceByShuffles<gpu::Max>(value(lane)); });
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(one[i], five[i]);
    EXPECT_EQ(top[i], top5[i]);
  }
}

TEST(ReduceTest, BlockReductionGivesAllThreadsTheResult) {
  constexpr int kThreads = 128;
  int wrong = 0;
  RunKernel(3, kThreads, [&] {
    GPU_SHARED(scratch, float[kThreads / 32]);
    const float sum = gpu::BlockSum<kThreads>(static_cast<float>(threadIdx.x), scratch);
    const float top = gpu::BlockMax<kThreads>(static_cast<float>(threadIdx.x), scratch);
    wrong += sum != 8128.0f || top != 127.0f;
  });
  EXPECT_EQ(wrong, 0);
}

TEST(AtomicTest, UpdatesReturnTheOldValue) {
  unsigned sum = 0, top = 0, wrapped = 0;
  float f = 0;
  std::array<int, 33> seen{};
  int owner = -1;
  RunKernel(1, 32, [&] {
    atomicAdd(&sum, 2u);
    atomicMax(&top, threadIdx.x);
    atomicAdd(&f, 0.5f);
    ++seen[atomicInc(&wrapped, 31)];
    atomicCAS(&owner, -1, static_cast<int>(threadIdx.x));
  });
  EXPECT_EQ(sum, 64u);
  EXPECT_EQ(top, 31u);
  EXPECT_EQ(f, 16.0f);
  EXPECT_EQ(wrapped, 0u);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(seen[i], 1);
  EXPECT_GE(owner, 0);
}

}  // namespace
}  // namespace vitrine::emu
