#include "kernels/cuda/launch.h"

#include <vector>

#include "cuda_emulator/device_array.h"
#include "cuda_emulator/run_kernel.h"

namespace vitrine::emu {
namespace {

using gpu::DeviceArray;

__global__ void IndexKernel(int* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = static_cast<int>(thread);
}
__global__ void DynamicKernel(float* out, int n) {
  GPU_DYNAMIC_SHARED(raw);
  auto* s = reinterpret_cast<float*>(raw);
  for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = 1;
  __syncthreads();
  if (threadIdx.x == 0) *out = s[n - 1];
}
__global__ void WaitingKernel(bool wait_all) {
  if (wait_all || threadIdx.x != 3) gpu::WaitForPrevious();
}

struct Inner {
  char tag = 0;
  const float* values = nullptr;
};
struct Outer {
  bool flag = false;
  Inner inner;
  int numbers[3] = {};
  Inner pair[2] = {};
  double number = 0;
  int* out = nullptr;
  short last = 0;
};
__global__ void OuterKernel(int /*first*/, Outer outer) {
  if (outer.out != nullptr) *outer.out = outer.numbers[2];
}

TEST(LaunchTest, RunsEveryThreadOfEveryBlock) {
  DeviceArray<int> out(2 * 3 * 2 * 4 * 3 * 2);
  gpu::CheckCuda(gpu::Launch(&IndexKernel, {dim3(2, 3, 2), dim3(4, 3, 2)}, out.data()));
  const auto o = out.ToHost();
  for (size_t i = 0; i < o.size(); ++i) EXPECT_EQ(o[i], static_cast<int>(i % 24));
}

TEST(LaunchTest, CopiesArgumentsAtTheCall) {
  const ScopedOptions restore;
  options().deferred_streams = true;
  cudaStream_t s;
  cudaStreamCreate(&s);
  DeviceArray<float> out(1);
  int n = 4;
  gpu::CheckCuda(gpu::Launch(&DynamicKernel, {dim3(1), dim3(8), 16, s}, out.data(), n));
  n = 1000000;
  cudaStreamSynchronize(s);
  EXPECT_EQ(out.ToHost()[0], 1);
  cudaStreamDestroy(s);
}

TEST(LaunchTest, RefusesWhatNoDeviceAccepts) {
  DeviceArray<int> out(8);
  const auto launch = [&](dim3 grid, dim3 block) {
    const cudaError_t e = gpu::Launch(&IndexKernel, {grid, block}, out.data());
    EXPECT_EQ(cudaGetLastError(), e);
    return e;
  };
  EXPECT_EQ(launch(0, 32), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, 1025), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, dim3(1, 1, 65)), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1, 65536), 32), cudaErrorInvalidConfiguration);
}

TEST(LaunchTest, DynamicSharedMemoryNeedsOptingIn) {
  DeviceArray<float> out(1);
  const gpu::LaunchConfig config{dim3(1), dim3(32), 64000};
  EXPECT_EQ(gpu::Launch(&DynamicKernel, config, out.data(), 16000), cudaErrorInvalidValue);
  EXPECT_EQ(gpu::AllowDynamicShared(&DynamicKernel, 64000), cudaSuccess);
  EXPECT_EQ(gpu::Launch(&DynamicKernel, config, out.data(), 16000), cudaSuccess);
  EXPECT_EQ(gpu::AllowDynamicShared(&DynamicKernel, 300000), cudaErrorInvalidValue);
  EXPECT_EQ(out.ToHost()[0], 1);
  cudaGetLastError();
}

TEST(LaunchTest, RefusesHostPointers) {
  float host = 0;
  const gpu::LaunchConfig config{dim3(1), dim3(32), 64};
  EXPECT_NE(StopReason([&] { (void)gpu::Launch(&DynamicKernel, config, &host, 16); }), "");
  const ScopedOptions restore;
  options().host_pointers = true;
  EXPECT_EQ(gpu::Launch(&DynamicKernel, config, &host, 16), cudaSuccess);
  EXPECT_EQ(host, 1);
}

TEST(LaunchTest, RefusesHostPointersInStructs) {
  DeviceArray<int> out(1);
  DeviceArray<float> values(2);
  int host_out = 0;
  const float host_value = 0;
  Outer good;
  good.numbers[2] = 3;
  good.inner.values = good.pair[0].values = good.pair[1].values = values.data();
  good.out = out.data();
  const auto reason = [](const Outer& outer) {
    return StopReason([&] { (void)gpu::Launch(&OuterKernel, {dim3(1), dim3(1)}, 0, outer); });
  };
  EXPECT_EQ(reason(good), "");
  EXPECT_EQ(out.ToHost()[0], 3);
  std::vector<Outer> bad(4, good);
  bad[0].inner.values = &host_value;
  bad[1].pair[0].values = &host_value;
  bad[2].pair[1].values = &host_value;
  bad[3].out = &host_out;
  for (const Outer& outer : bad) {
    EXPECT_NE(reason(outer).find("argument 1 points to host memory"), std::string::npos);
  }
}

// A field may begin in the padding at the end of a base, where this one is not found.
struct Base {
  int* first = nullptr;
  char second = 0;
};
struct Derived : Base {
  char third = 0;
};
__global__ void DerivedKernel(Derived) {}

TEST(LaunchTest, RefusesStructsWithHiddenFields) {
  EXPECT_NE(StopReason([] { (void)gpu::Launch(&DerivedKernel, {dim3(1), dim3(1)}, Derived()); }),
            "");
}

TEST(LaunchTest, OverlapNeedsAWaitInEveryThread) {
  gpu::LaunchConfig config{dim3(1), dim3(32)};
  EXPECT_EQ(gpu::Launch(&WaitingKernel, config, false), cudaSuccess);
  config.overlap_previous = true;
  EXPECT_EQ(gpu::Launch(&WaitingKernel, config, true), cudaSuccess);
  EXPECT_NE(StopReason([&] { (void)gpu::Launch(&WaitingKernel, config, false); }), "");
}

TEST(LaunchTest, CountsItsWork) {
  stats() = {};
  RunKernel(dim3(2, 2), 64, [] { __syncthreads(); });
  EXPECT_EQ(stats().launches, 1u);
  EXPECT_EQ(stats().blocks, 4u);
  EXPECT_EQ(stats().threads, 256u);
  EXPECT_EQ(stats().switches, 512u);
}

TEST(LaunchTest, DeviceThatFailsStaysFailed) {
  const ScopedOptions restore;
  DeviceArray<int> out(8);
  options().fault_at_launch = stats().launches + 2;
  const auto launch = [&] { return gpu::Launch(&IndexKernel, {dim3(1), dim3(8)}, out.data()); };
  EXPECT_EQ(launch(), cudaSuccess);
  EXPECT_EQ(launch(), cudaSuccess);  // Accepted; what follows learns how it ended.
  EXPECT_EQ(launch(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, 16), cudaErrorIllegalAddress);
  ReplaceDevice();
  EXPECT_EQ(launch(), cudaSuccess);
}

}  // namespace
}  // namespace vitrine::emu
