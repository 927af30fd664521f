#include "kernels/scatter_add.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/backends.h"

namespace vitrine::testing {
namespace {

class ScatterAddTest : public ::testing::TestWithParam<BackendCase> {};

// The same bits on every backend: each product and each sum is rounded once.
TEST_P(ScatterAddTest, AddsScaledRows) {
  for (const int columns : {1, 8, 33, 576}) {
    Harness harness(GetParam());
    if (harness->records()) GTEST_SKIP() << "a backend that records steps has no such op";
    Random random(4);
    const std::vector<float> input = random.Normal(int64_t{3} * columns);
    std::vector<float> expected = random.Normal(int64_t{19} * columns);
    const DeviceSpan<float> output = harness.Upload(expected);
    const std::vector<int32_t> ids = {18, 3, 0};
    const std::vector<float> scales = {0.25f, 1.0f / 3.0f, -2.0f};
    harness->ScatterAdd({.input = harness.Upload(input),
                         .row_ids = ids,
                         .scales = scales,
                         .columns = columns,
                         .output = output});
    for (size_t i = 0; i < input.size(); ++i) {
      const size_t row = i / static_cast<size_t>(columns);
      const auto place = static_cast<size_t>(ids[row]) * static_cast<size_t>(columns) +
                         i % static_cast<size_t>(columns);
      const float product = scales[row] * input[i];
      expected[place] += product;
    }
    EXPECT_EQ(harness.Download(output), expected);
  }
}

VITRINE_INSTANTIATE_BACKENDS(ScatterAddTest);

}  // namespace
}  // namespace vitrine::testing
