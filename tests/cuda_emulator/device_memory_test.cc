#include "cuda_emulator/device_memory.h"

#include <cstring>
#include <vector>

#include "cuda_emulator/device_array.h"
#include "cuda_emulator/run_kernel.h"

namespace vitrine::emu {
namespace {

using gpu::DeviceArray;

TEST(DeviceMemoryTest, KnowsItsAllocations) {
  const size_t before = AllocatedBytes();
  DeviceArray<int> d(10);
  int host = 0;
  EXPECT_TRUE(IsKernelAccessible(d.data()));
  EXPECT_TRUE(IsKernelAccessible(d.data() + 9));
  EXPECT_FALSE(IsKernelAccessible(&host));
  EXPECT_EQ(AllocatedBytes() - before, 40u);
  EXPECT_TRUE(IsWithinAllocation(d.data(), 40));
  EXPECT_FALSE(IsWithinAllocation(d.data(), 41));
  EXPECT_FALSE(IsWithinAllocation(d.data() + 5, 24));
}

TEST(DeviceMemoryTest, FreshMemoryIsGarbage) {
#if !EMU_MSAN
  DeviceArray<unsigned> d(3);
  EXPECT_EQ(d.ToHost(), (std::vector<unsigned>(3, ~0u)));
#endif
}

TEST(DeviceMemoryTest, FreeRefusesForeignPointers) {
  int host = 0;
  EXPECT_EQ(cudaFree(&host), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
}

TEST(DeviceMemoryTest, CopiesBeyondAnAllocationAreRefused) {
  DeviceArray<int> d(4);
  std::vector<int> host(8, 1);
  EXPECT_EQ(cudaMemcpy(d.data(), host.data(), 32, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(d.data() + 2, 0, 12), cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST(DeviceMemoryTest, ReportsFreeMemory) {
  size_t before = 0, after = 0, total = 0;
  cudaMemGetInfo(&before, &total);
  DeviceArray<char> d(1000);
  cudaMemGetInfo(&after, &total);
  EXPECT_EQ(before - after, 1000u);
}

TEST(ProtectedMemoryTest, KernelsAndCopiesReachIt) {
  const ScopedOptions restore;
  options().protect_device_memory = true;
  DeviceArray<int> d(std::vector<int>(33, 5));
  RunKernel(1, 33, [&] { d.data()[threadIdx.x] += 1; });
  EXPECT_EQ(d.ToHost(), std::vector<int>(33, 6));
}

#if !EMU_KERNEL_TSAN && !EMU_MSAN && !EMU_ASAN  // death tests fork
TEST(ProtectedMemoryDeathTest, HostAccessFaults) {
  const ScopedOptions restore;
  options().protect_device_memory = true;
  DeviceArray<int> d(std::vector<int>(33, 5));
  volatile int* p = d.data();
  EXPECT_DEATH(*p = 1, "");
}

TEST(ProtectedMemoryDeathTest, KernelOverrunFaults) {
  const ScopedOptions restore;
  options().protect_device_memory = true;
  DeviceArray<int> d(std::vector<int>(32, 5));
  EXPECT_DEATH(RunKernel(1, 1, [&] { d.data()[32] = 1; }), "");
}
#endif

}  // namespace
}  // namespace vitrine::emu
