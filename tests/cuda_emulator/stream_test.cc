#include "cuda_emulator/stream.h"

#include <thread>
#include <vector>

#include "cuda_emulator/device_array.h"
#include "cuda_emulator/run_kernel.h"
#include "kernels/cuda/launch.h"

namespace vitrine::emu {
namespace {

using gpu::DeviceArray;

__global__ void AddKernel(int* p, int v) { p[threadIdx.x] += v; }
__global__ void DoubleKernel(int* p) { p[threadIdx.x] *= 2; }

class StreamTest : public ::testing::TestWithParam<bool> {  // deferred or not
 protected:
  void SetUp() override {
    options().deferred_streams = GetParam();
    cudaStreamCreate(&a_);
    cudaStreamCreate(&b_);
  }
  void TearDown() override {
    cudaStreamDestroy(a_);
    cudaStreamDestroy(b_);
  }
  void Add(int* p, int v, cudaStream_t s) {
    gpu::CheckCuda(gpu::Launch(&AddKernel, {dim3(1), dim3(1), 0, s}, p, v));
  }
  void Double(int* p, cudaStream_t s) {
    gpu::CheckCuda(gpu::Launch(&DoubleKernel, {dim3(1), dim3(1), 0, s}, p));
  }
  ScopedOptions restore_;
  cudaStream_t a_ = nullptr, b_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Modes, StreamTest, ::testing::Bool(),
                         [](const auto& mode) { return mode.param ? "Deferred" : "Eager"; });

TEST_P(StreamTest, KeepsTheOrderWithinAStream) {
  for (int seed = 1; seed <= 20; ++seed) {
    Seed(seed);
    DeviceArray<int> d(std::vector<int>{1});
    for (int i = 0; i < 5; ++i) {
      Add(d.data(), 1, a_);
      Double(d.data(), a_);
    }
    cudaStreamSynchronize(a_);
    EXPECT_EQ(d.ToHost()[0], 94);
  }
}

TEST_P(StreamTest, EventOrdersTwoStreams) {
  for (int seed = 1; seed <= 20; ++seed) {
    Seed(seed);
    DeviceArray<int> d(std::vector<int>{3});
    cudaEvent_t e;
    cudaEventCreate(&e);
    Add(d.data(), 1, a_);
    cudaEventRecord(e, a_);
    cudaStreamWaitEvent(b_, e, 0);
    Double(d.data(), b_);
    cudaStreamSynchronize(b_);
    EXPECT_EQ(d.ToHost()[0], 8);
    cudaEventDestroy(e);
  }
}

// Draining stream a from inside a wait of stream b must not start b's next operation.
TEST_P(StreamTest, WaitsInACircleOfStreamsKeepTheOrder) {
  for (int seed = 1; seed <= 20; ++seed) {
    Seed(seed);
    DeviceArray<int> d(std::vector<int>{1});
    cudaEvent_t e[6];
    for (int i = 0; i < 6; ++i) {
      cudaStream_t from = i % 2 != 0 ? b_ : a_, to = i % 2 != 0 ? a_ : b_;
      cudaEventCreate(&e[i]);
      Add(d.data(), 1, from);
      Double(d.data(), from);
      cudaEventRecord(e[i], from);
      cudaStreamWaitEvent(to, e[i], 0);
    }
    cudaDeviceSynchronize();
    EXPECT_EQ(d.ToHost()[0], 190);
    for (cudaEvent_t& x : e) cudaEventDestroy(x);
  }
}

TEST_P(StreamTest, DefaultStreamWaitsForAll) {
  DeviceArray<int> d(std::vector<int>{1});
  Add(d.data(), 4, a_);
  Double(d.data(), nullptr);
  EXPECT_EQ(d.ToHost()[0], 10);
}

TEST_P(StreamTest, PollingAnEventMakesProgress) {
  DeviceArray<int> d(std::vector<int>{1});
  cudaEvent_t e;
  cudaEventCreate(&e);
  for (int i = 0; i < 3; ++i) Add(d.data(), 1, a_);
  cudaEventRecord(e, a_);
  int polls = 0;
  while (cudaEventQuery(e) == cudaErrorNotReady) ++polls;
  EXPECT_EQ(polls, GetParam() ? 3 : 0);
  cudaEventDestroy(e);
}

TEST_P(StreamTest, GraphRunsNothingAtCaptureAndAllAtLaunch) {
  DeviceArray<int> d(std::vector<int>{0});
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaStreamBeginCapture(a_, cudaStreamCaptureModeThreadLocal);
  Add(d.data(), 1, a_);
  Double(d.data(), a_);
  cudaStreamEndCapture(a_, &graph);
  cudaGraphInstantiate(&exec, graph, 0);
  EXPECT_EQ(d.ToHost()[0], 0);
  for (int i = 0; i < 3; ++i) cudaGraphLaunch(exec, a_);
  cudaStreamSynchronize(a_);
  EXPECT_EQ(d.ToHost()[0], 14);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
}

TEST_P(StreamTest, HostThreadsMayShareTheDevice) {
  DeviceArray<int> d(std::vector<int>{0, 0});
  std::thread other([&] {
    for (int i = 0; i < 50; ++i) Add(d.data(), 1, a_);
    cudaStreamSynchronize(a_);
  });
  for (int i = 0; i < 50; ++i) Add(d.data() + 1, 1, b_);
  cudaStreamSynchronize(b_);
  other.join();
  EXPECT_EQ(d.ToHost(), (std::vector<int>{50, 50}));
}

TEST(DeferredStreamTest, NothingRunsBeforeSomebodyWaits) {
  const ScopedOptions restore;
  options().deferred_streams = true;
  cudaStream_t s;
  cudaStreamCreate(&s);
  bool ran = false;
  Enqueue(s, [&] { ran = true; });
  EXPECT_FALSE(ran);
  cudaStreamSynchronize(s);
  EXPECT_TRUE(ran);
  cudaStreamDestroy(s);
}

TEST(CaptureTest, IsRefusedOnTheLegacyStream) {
  EXPECT_NE(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  cudaGetLastError();
}

}  // namespace
}  // namespace vitrine::emu
