#include "cuda_emulator/async_copy.h"

#include <cmath>
#include <vector>

#include "cuda_emulator/device_array.h"
#include "cuda_emulator/run_kernel.h"
#include "kernels/cuda/ptx.h"

namespace vitrine::emu {
namespace {

class AsyncCopyTest : public ::testing::Test {
 protected:
  gpu::DeviceArray<float> source_{std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}};
  float before_ = 0, after_ = 0, second_ = 0;
};

TEST_F(AsyncCopyTest, DestinationIsGarbageUntilTheWait) {
  RunKernel(1, 1, [&] {
    GPU_SHARED(dst, float4);
    dst = make_float4(9, 9, 9, 9);
    gpu::CpAsync16(&dst, source_.data());
    gpu::CpAsyncCommit();
#if !EMU_MSAN  // MSan would rightly report this read
    before_ = dst.x;
#else
    before_ = NAN;
#endif
    gpu::CpAsyncWait<0>();
    after_ = dst.x;
  });
  EXPECT_TRUE(std::isnan(before_));
  EXPECT_EQ(after_, 1);
}

TEST_F(AsyncCopyTest, WaitKeepsTheNewestGroups) {
  RunKernel(1, 1, [&] {
    GPU_SHARED(dst, float4[2]);
    gpu::CpAsync16(&dst[0], source_.data());
    gpu::CpAsyncCommit();
    gpu::CpAsync16(&dst[1], source_.data() + 4);
    gpu::CpAsyncCommit();
    gpu::CpAsyncWait<1>();
    after_ = dst[0].w;
#if !EMU_MSAN
    before_ = dst[1].w;
#else
    before_ = NAN;
#endif
    gpu::CpAsyncWait<0>();
    second_ = dst[1].w;
  });
  EXPECT_EQ(after_, 4);
  EXPECT_TRUE(std::isnan(before_));
  EXPECT_EQ(second_, 8);
}

TEST_F(AsyncCopyTest, InvalidSourceGivesZerosAndIsNotRead) {
  RunKernel(1, 1, [&] {
    GPU_SHARED(dst, float4);
    gpu::CpAsync16(&dst, nullptr, false);
    gpu::CpAsyncCommit();
    gpu::CpAsyncWait<0>();
    after_ = dst.x + dst.y + dst.z + dst.w;
  });
  EXPECT_EQ(after_, 0);
}

TEST_F(AsyncCopyTest, StopsOnMisalignment) {
  EXPECT_STOPS(1, "misaligned", [&] {
    GPU_SHARED(dst, float4[2]);
    gpu::CpAsync16(reinterpret_cast<char*>(&dst[0]) + 4, source_.data());
  });
  EXPECT_STOPS(1, "misaligned", [&] {
    GPU_SHARED(dst, float4);
    gpu::CpAsync16(&dst, source_.data() + 1);
  });
}

TEST_F(AsyncCopyTest, EarlyModeCopiesAtOnce) {
  const ScopedOptions restore;
  options().copies = Copies::kEarly;
  RunKernel(1, 1, [&] {
    GPU_SHARED(dst, float4);
    gpu::CpAsync16(&dst, source_.data());
    before_ = dst.y;
  });
  EXPECT_EQ(before_, 2);
}

}  // namespace
}  // namespace vitrine::emu
