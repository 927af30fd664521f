// What the sanitizers are told. Each test runs in the build it is about; the fault matrix checks
// the resulting reports end to end.
#include "cuda_emulator/sanitizer.h"

#include <cstring>
#include <string_view>

#include "cuda_emulator/device_array.h"
#include "cuda_emulator/run_kernel.h"
#include "kernels/cuda/ptx.h"

namespace vitrine::emu {
namespace {

TEST(SanitizerTest, BuildIsWhatItClaims) {
  constexpr std::string_view kBuild = EMULATOR_BUILD;
  EXPECT_EQ(EMU_ASAN != 0, kBuild.starts_with("address"));
  EXPECT_EQ(EMU_KERNEL_TSAN != 0, kBuild == "thread");
  EXPECT_EQ(EMU_MSAN != 0, kBuild == "memory");
}

#if EMU_ASAN
TEST(AsanTest, RedZonesAroundSharedArraysArePoisoned) {
  bool inside = true, after = false, dynamic_after = false;
  RunKernel(
      1, 1,
      [&] {
        GPU_SHARED(v, char[8]);
        const char* p = &v[0];
        inside = __asan_address_is_poisoned(p + 7);
        after = __asan_address_is_poisoned(p + 8);
        dynamic_after = __asan_address_is_poisoned(DynamicShared() + 24);
      },
      24);
  EXPECT_FALSE(inside);
  EXPECT_TRUE(after);
  EXPECT_TRUE(dynamic_after);
}
TEST(AsanTest, DeviceArraysEndWhereTheyEnd) {
  gpu::DeviceArray<char> d(24);
  EXPECT_FALSE(__asan_address_is_poisoned(d.data() + 23));
  EXPECT_TRUE(__asan_address_is_poisoned(d.data() + 24));
}
#endif

#if EMU_MSAN
TEST(MsanTest, FreshMemoryIsUninitialised) {
  gpu::DeviceArray<int> d(4);
  EXPECT_EQ(__msan_test_shadow(d.data(), 16), 0);
  long shared = -1;
  RunKernel(1, 1, [&] {
    GPU_SHARED(v, int);
    shared = __msan_test_shadow(&v, 4);
  });
  EXPECT_EQ(shared, 0);
}
TEST(MsanTest, ShufflesCarryTheShadow) {
  long from_poison = -1, from_clean = 0;
  gpu::DeviceArray<int> d(1);
  RunKernel(1, 32, [&] {
    const int v = threadIdx.x == 7 ? *d.data() : 1;
    const int a = __shfl_sync(~0u, v, 7), b = __shfl_sync(~0u, v, 8);
    if (threadIdx.x == 0) {
      from_poison = __msan_test_shadow(&a, 4);
      from_clean = __msan_test_shadow(&b, 4);
    }
  });
  EXPECT_EQ(from_poison, 0);
  EXPECT_EQ(from_clean, -1);
}
TEST(MsanTest, MmaCarriesTheShadow) {
  long poisoned = -1, clean = 0;
  gpu::DeviceArray<uint32_t> d(1);
  RunKernel(1, 32, [&] {  // row 0 of A comes from lane 0
    const uint32_t a[4] = {threadIdx.x == 0 ? *d.data() : 0, 0, 0, 0};
    float acc[4] = {};
    gpu::MmaBf16(acc, a, 0, 0);
    if (threadIdx.x != 0) return;
    poisoned = __msan_test_shadow(&acc[0], 4);  // row 0
    clean = __msan_test_shadow(&acc[2], 4);     // row 8
  });
  EXPECT_GE(poisoned, 0);  // the first poisoned byte: bf16 fills the upper two
  EXPECT_EQ(clean, -1);
}
#endif

}  // namespace
}  // namespace vitrine::emu
