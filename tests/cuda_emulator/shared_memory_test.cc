#include "cuda_emulator/shared_memory.h"

#include <cstring>
#include <vector>

#include "cuda_emulator/run_kernel.h"
#include "cuda_emulator/sanitizer.h"
#include "kernels/cuda/portable.h"

namespace vitrine::emu {
namespace {

template <int kId>
float* InstanceArray() {
  GPU_SHARED(values, float[4]);
  return &values[0];
}

TEST(SharedMemoryTest, OneArrayPerVariableAndInstance) {
  std::vector<float*> a, b;
  RunKernel(1, 8, [&] {
    a.push_back(InstanceArray<1>());
    b.push_back(InstanceArray<2>());
  });
  EXPECT_NE(a[0], b[0]);
  for (float* p : a) EXPECT_EQ(p, a[0]);
}

TEST(SharedMemoryTest, IsGarbageInEveryBlock) {
#if !EMU_MSAN  // MSan would rightly report these reads
  int clean = 0;
  RunKernel(
      4, 1,
      [&] {
        GPU_SHARED(v, unsigned);
        auto* dynamic = reinterpret_cast<unsigned*>(DynamicShared());
        clean += v != ~0u || *dynamic != ~0u;
        v = 0;
        *dynamic = 0;
      },
      16);
  EXPECT_EQ(clean, 0);
#endif
}

TEST(SharedMemoryTest, ArraysAreAligned) {
  bool aligned = true;
  RunKernel(
      1, 1,
      [&] {
        GPU_SHARED(odd, char[3]);
        GPU_SHARED(wide, uint4);
        odd[0] = 1;
        aligned = reinterpret_cast<uintptr_t>(&wide) % 128 == 0 &&
                  reinterpret_cast<uintptr_t>(DynamicShared()) % 128 == 0;
      },
      5);
  EXPECT_TRUE(aligned);
}

#if !EMU_ASAN && !EMU_MSAN  // there the sanitizer reports the write itself
TEST(SharedMemoryTest, WritesIntoRedZonesStopTheKernel) {
  EXPECT_STOPS(1, "outside a shared array", [] {
    GPU_SHARED(v, int[4]);
    int* volatile p = &v[0];
    p[4] = 0;
  });
  EXPECT_STOPS(1, "outside a shared array, 20 bytes", [] { DynamicShared()[20] = 0; }, 20);
  EXPECT_STOPS(1, "outside a shared array, -1 bytes", [] { DynamicShared()[-1] = 0; }, 20);
}
#endif

TEST(SharedMemoryTest, StaticLimitIsEnforced) {
  EXPECT_STOPS(1, "48 KiB of static", [] {
    GPU_SHARED(big, char[40 * 1024]);
    GPU_SHARED(more, char[9 * 1024]);
    big[0] = more[0] = 1;
  });
}

TEST(SharedMemoryTest, DynamicRegionMayFillADevice) {
  SetDynamicLimit(nullptr, 160 * 1024);
  EXPECT_EQ(StopMessage(1, [] { memset(DynamicShared(), 0, 160 * 1024); }, 160 * 1024), "");
  SetDynamicLimit(nullptr, kDefaultSharedLimit);
}

}  // namespace
}  // namespace vitrine::emu
