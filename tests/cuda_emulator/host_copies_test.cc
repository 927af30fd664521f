// How results reach the host while the device goes on.
#include "kernels/cuda/host_copies.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

#include "cuda_emulator/options.h"

namespace vitrine::cuda {
namespace {

// On a device that works as late as it may.
class HostCopiesTest : public ::testing::TestWithParam<size_t> {
 protected:
  HostCopiesTest() : values_(GetParam()) {
    emu::options().deferred_streams = true;
    CheckCuda(cudaStreamCreate(&compute_));
    for (void*& data : device_) CheckCuda(cudaMalloc(&data, bytes()));
    std::iota(values_.begin(), values_.end(), 1);
  }
  ~HostCopiesTest() override {
    for (void* data : device_) CheckCuda(cudaFree(data));
    CheckCuda(cudaStreamDestroy(compute_));
    emu::options() = before_;
  }

  size_t bytes() const { return GetParam() * sizeof(int32_t); }
  // Enqueued, as a step would compute it.
  void Compute(int which) {
    CheckCuda(
        cudaMemcpyAsync(device_[which], values_.data(), bytes(), cudaMemcpyHostToDevice, compute_));
  }

  std::vector<int32_t> values_;
  cudaStream_t compute_ = nullptr;
  void* device_[2] = {};

 private:
  const emu::Options before_ = emu::options();
};

TEST_P(HostCopiesTest, CopyWaitsForWhatIsEnqueued) {
  HostCopies copies(compute_);
  Compute(0);
  std::vector<int32_t> result(GetParam());
  copies.Copy(device_[0], result.data(), bytes());
  EXPECT_EQ(result, values_);
}

TEST_P(HostCopiesTest, StartedCopiesHoldWhatWasEnqueuedBefore) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    emu::Seed(seed);
    HostCopies copies(compute_);
    std::vector<int32_t> first(GetParam()), second(GetParam()), third(GetParam());
    Compute(0);
    copies.Start(device_[0], first.data(), bytes());
    Compute(1);
    copies.Start(device_[1], second.data(), bytes());
    // While those are under way.
    copies.Copy(device_[0], third.data(), bytes());
    copies.Finish();
    EXPECT_EQ(first, values_);
    EXPECT_EQ(second, values_);
    EXPECT_EQ(third, values_);
    for (void* data : device_) CheckCuda(cudaMemset(data, 0, bytes()));
  }
}

TEST_P(HostCopiesTest, FinishDoesNotWaitForWhatWasEnqueuedLater) {
  bool has_overtaken = false;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    emu::Seed(seed);
    HostCopies copies(compute_);
    std::vector<int32_t> result(GetParam());
    Compute(0);
    copies.Start(device_[0], result.data(), bytes());
    CheckCuda(cudaMemsetAsync(device_[1], 0, bytes(), compute_));
    cudaEvent_t later = nullptr;
    CheckCuda(cudaEventCreate(&later));
    CheckCuda(cudaEventRecord(later, compute_));
    copies.Finish();
    EXPECT_EQ(result, values_);
    // Asking lets the device go on, so it is asked once.
    has_overtaken = has_overtaken || cudaEventQuery(later) == cudaErrorNotReady;
    CheckCuda(cudaStreamSynchronize(compute_));
    CheckCuda(cudaEventDestroy(later));
  }
  EXPECT_TRUE(has_overtaken);
}

// The largest does not fit into pinned memory.
INSTANTIATE_TEST_SUITE_P(Sizes, HostCopiesTest, ::testing::Values(1, 1000, 40'000));

}  // namespace
}  // namespace vitrine::cuda
