// What a replayed step sends to the device.
#include "kernels/cuda/staging.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
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
    Staging staging(stream_);
    staging.StartRecording(arrays_);
    device_own_ = staging.StageOwn(std::span<const int32_t>(own_));
    device_position_ = staging.Stage(std::span<const int32_t>(&position_, 1));
    device_table_ = staging.Stage(std::span<const int32_t>(table_));
    staging.StopRecording();
  }
  ~RecordedArraysTest() override { CheckCuda(cudaStreamDestroy(stream_)); }

  // Updates, expects that the device has what a replay is to read, and returns what it took.
  emu::Stats Update() {
    const emu::Stats before = emu::stats();
    arrays_.Update(stream_);
    emu::Stats sent;
    sent.uploads = emu::stats().uploads - before.uploads;
    sent.uploaded_bytes = emu::stats().uploaded_bytes - before.uploaded_bytes;
    EXPECT_EQ(Download(device_table_, table_.size()), table_);
    EXPECT_EQ(Download(device_position_, 1), std::vector<int32_t>{position_});
    EXPECT_EQ(Download(device_own_, own_.size()), std::vector<int32_t>(own_.size(), 5));
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

}  // namespace
}  // namespace vitrine::cuda
