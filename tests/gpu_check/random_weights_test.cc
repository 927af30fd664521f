#include "tests/gpu_check/random_weights.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "kernels/dtype.h"
#include "tests/cuda_emulator/device_array.h"

namespace vitrine::gpu_check {
namespace {

constexpr int kColumns = 96;
constexpr float kDeviation = 0.125f;

std::vector<uint16_t> BitsOf(const gpu::DeviceArray<__nv_bfloat16>& matrix) {
  std::vector<uint16_t> bits;
  for (const __nv_bfloat16& value : matrix.ToHost()) bits.push_back(std::bit_cast<uint16_t>(value));
  return bits;
}

TEST(RandomWeightsTest, DeviceMakesTheHostsWeights) {
  constexpr int kRows = 21, kFirstRow = 2, kFirst = 1028;
  const gpu::DeviceArray<__nv_bfloat16> matrix((kFirstRow + kRows) * kColumns);
  gpu::CheckCuda(cudaMemset(matrix.data(), 0, matrix.size() * sizeof(__nv_bfloat16)));
  FillRandomRows({.matrix = matrix.data(),
                  .first_row = kFirstRow,
                  .rows = kRows,
                  .columns = kColumns,
                  .first = kFirst,
                  .deviation = kDeviation});
  const std::vector<uint16_t> pool = RandomWeights(kFirst + kRows * kColumns, kDeviation);
  std::vector<uint16_t> expected(kFirstRow * kColumns, 0);
  expected.insert(expected.end(), pool.begin() + kFirst, pool.end());
  EXPECT_EQ(BitsOf(matrix), expected);
}

TEST(RandomWeightsTest, InterleavedRowsLeaveRoomForOthers) {
  constexpr int kRows = 24;
  const gpu::DeviceArray<__nv_bfloat16> matrix(2 * kRows * kColumns);
  for (const int part : {0, 1}) {
    FillRandomRows({.matrix = matrix.data(),
                    .first_row = 8 * part,
                    .rows = kRows,
                    .columns = kColumns,
                    .is_interleaved = true,
                    .first = 4 * part,
                    .deviation = kDeviation});
  }
  const std::vector<uint16_t> pool = RandomWeights(4 + kRows * kColumns, kDeviation);
  const std::vector<uint16_t> bits = BitsOf(matrix);
  for (size_t row = 0; row < 2 * kRows; ++row) {
    const size_t part = row / 8 % 2, of_part = row / 16 * 8 + row % 8;
    for (size_t c = 0; c < kColumns; ++c) {
      ASSERT_EQ(bits[row * kColumns + c], pool[4 * part + of_part * kColumns + c])
          << row << ", " << c;
    }
  }
}

// Of independent values the mean is within 6 of its own deviations with near certainty; bits of a
// pool are the same in every run, so this fails always or never.
TEST(RandomWeightsTest, HaveTheirDeviationAndNoPattern) {
  constexpr size_t kCount = 100000;
  const std::vector<uint16_t> pool = RandomWeights(kCount, kDeviation);
  double sum = 0, squares = 0, neighbours = 0;
  for (size_t i = 0; i < kCount; ++i) {
    const double value = FloatFromBf16(pool[i]);
    sum += value;
    squares += value * value;
    if (i > 0) neighbours += value * FloatFromBf16(pool[i - 1]);
  }
  const double bound = 6 / std::sqrt(double{kCount});
  EXPECT_LT(std::abs(sum / kCount), bound * kDeviation);
  EXPECT_NEAR(squares / kCount / (kDeviation * kDeviation), 1.0, bound);
  EXPECT_LT(std::abs(neighbours / kCount) / (kDeviation * kDeviation), bound);
}

}  // namespace
}  // namespace vitrine::gpu_check
