// What reaches the device, and when its memory is had again.
#include "kernels/cuda/staging.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "cuda_emulator/options.h"

namespace vitrine::cuda {
namespace {

// A block table of 64 sequences with a context of 32k, and an array whose changes a replay must
// not see.
class RecordedArraysTest : public ::testing::Test {
 protected:
  RecordedArraysTest() : table_(64 * 2048), own_(3, 5) {
    CheckCuda(cudaStreamCreate(&stream_));
    std::iota(table_.begin(), table_.end(), 0);
    staging_.emplace(stream_);
    staging_->StartRecording(arrays_);
    device_own_ = staging_->StageOwn(std::span<const int32_t>(own_));
    device_position_ = staging_->Stage(std::span<const int32_t>(&position_, 1));
    device_table_ = staging_->Stage(std::span<const int32_t>(table_));
    staging_->StopRecording();
  }
  ~RecordedArraysTest() override { CheckCuda(cudaStreamDestroy(stream_)); }

  // Updates, expects that the device has what a replay is to read, and returns what it took.
  emu::Stats Update() {
    const emu::Stats before = emu::stats();
    arrays_.Update(*staging_);
    emu::Stats sent;
    sent.uploads = emu::stats().uploads - before.uploads;
    sent.uploaded_bytes = emu::stats().uploaded_bytes - before.uploaded_bytes;
    EXPECT_EQ(Download(device_table_, table_.size()), table_);
    EXPECT_EQ(Download(device_position_, 1), std::vector<int32_t>{position_});
    EXPECT_EQ(Download(device_own_, own_.size()), std::vector<int32_t>(own_.size(), 5));
    staging_->Reset();
    return sent;
  }

  std::vector<int32_t> table_;
  int32_t position_ = 7;
  std::vector<int32_t> own_;

 private:
  std::vector<int32_t> Download(const int32_t* device, size_t count) const {
    std::vector<int32_t> host(count);
    CheckCuda(cudaMemcpyAsync(host.data(), device, count * sizeof(int32_t), cudaMemcpyDeviceToHost,
                              stream_));
    CheckCuda(cudaStreamSynchronize(stream_));
    return host;
  }

  cudaStream_t stream_ = nullptr;
  std::optional<Staging> staging_;
  RecordedArrays arrays_;
  const int32_t* device_own_ = nullptr;
  const int32_t* device_position_ = nullptr;
  const int32_t* device_table_ = nullptr;
};

TEST_F(RecordedArraysTest, TheFirstUpdateSendsAllAndTheSecondNothing) {
  EXPECT_GE(Update().uploaded_bytes, table_.size() * sizeof(int32_t));
  own_.assign(own_.size(), 6);
  EXPECT_EQ(Update().uploads, 0u);
}

TEST_F(RecordedArraysTest, ANewBlockIsAFewBytes) {
  Update();
  table_[5 * 2048 + 17] = -3;
  const emu::Stats sent = Update();
  EXPECT_EQ(sent.uploads, 1u);
  EXPECT_LE(sent.uploaded_bytes, 256u);
}

TEST_F(RecordedArraysTest, NeighboursShareACopyAndDistantEntriesDoNot) {
  Update();
  table_[2048] = -1;
  table_[3 * 2048] = -2;  // 16 KiB further.
  EXPECT_EQ(Update().uploads, 1u);
  table_[0] = -3;
  table_[63 * 2048] = -4;
  const emu::Stats sent = Update();
  EXPECT_EQ(sent.uploads, 2u);
  EXPECT_LE(sent.uploaded_bytes, 512u);
  table_.back() = -5;
  position_ = 8;  // In another chunk of the arena.
  EXPECT_EQ(Update().uploads, 2u);
}

TEST_F(RecordedArraysTest, AnySetOfChangesArrives) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    for (uint32_t n = random() % 40; n > 0; --n) {
      table_[random() % table_.size()] = static_cast<int32_t>(random());
    }
    position_ = round;
    Update();
  }
}

// Two steps are under way at a time: what the first has staged is gone when it is complete, what
// the second has staged is not. On a device that works as late as it may.
class StagingTest : public ::testing::Test {
 protected:
  StagingTest() {
    emu::options().deferred_streams = true;
    CheckCuda(cudaStreamCreate(&stream_));
    CheckCuda(cudaMalloc(&result_, kRows * kBytes));
  }
  ~StagingTest() override {
    CheckCuda(cudaFree(result_));
    CheckCuda(cudaStreamDestroy(stream_));
    emu::options() = before_;
  }

  // A step that stages kBytes of `value` and writes them to its row.
  void Step(Staging& staging, int32_t value) {
    const std::vector<int32_t> array(kBytes / sizeof(int32_t), value);
    const int32_t* const staged = staging.Stage(std::span<const int32_t>(array));
    CheckCuda(cudaMemcpyAsync(Row(value), staged, kBytes, cudaMemcpyDeviceToDevice, stream_));
  }
  void ExpectRow(int32_t value) {
    std::vector<int32_t> row(kBytes / sizeof(int32_t));
    CheckCuda(cudaMemcpyAsync(row.data(), Row(value), kBytes, cudaMemcpyDeviceToHost, stream_));
    CheckCuda(cudaStreamSynchronize(stream_));
    EXPECT_EQ(row, std::vector<int32_t>(row.size(), value));
  }

  static constexpr int kRows = 64;
  static constexpr size_t kBytes = size_t{200} << 10;  // Two need two chunks.
  cudaStream_t stream_ = nullptr;

 private:
  std::byte* Row(int32_t value) const {
    return static_cast<std::byte*>(result_) + static_cast<size_t>(value) * kBytes;
  }

  void* result_ = nullptr;
  const emu::Options before_ = emu::options();
};

TEST_F(StagingTest, AStepAheadKeepsItsArraysAndNothingGrows) {
  Staging staging(stream_);
  cudaEvent_t is_done = nullptr;
  CheckCuda(cudaEventCreate(&is_done));
  uint64_t allocations = 0;
  Step(staging, 0);
  for (int32_t step = 0; step + 1 < kRows; ++step) {
    CheckCuda(cudaEventRecord(is_done, stream_));
    staging.Mark();
    Step(staging, step + 1);
    CheckCuda(cudaEventSynchronize(is_done));
    staging.ResetMarked();
    if (step == 2) allocations = emu::stats().allocations;
  }
  EXPECT_EQ(emu::stats().allocations, allocations);
  for (int32_t step = 0; step < kRows; ++step) ExpectRow(step);
  CheckCuda(cudaEventDestroy(is_done));
}

TEST_F(StagingTest, OnlyTheFirstMarkCounts) {
  cudaEvent_t is_done = nullptr;
  CheckCuda(cudaEventCreate(&is_done));
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    emu::Seed(seed);
    Staging staging(stream_);
    Step(staging, 1);
    CheckCuda(cudaEventRecord(is_done, stream_));
    staging.Mark();
    Step(staging, 2);
    staging.Mark();
    CheckCuda(cudaEventSynchronize(is_done));
    staging.ResetMarked();
    Step(staging, 3);
    staging.Mark();
    Step(staging, 4);
    for (const int32_t step : {1, 2, 3, 4}) ExpectRow(step);
  }
  CheckCuda(cudaEventDestroy(is_done));
}

}  // namespace
}  // namespace vitrine::cuda
