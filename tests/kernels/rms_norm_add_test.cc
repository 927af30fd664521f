#include "kernels/rms_norm_add.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/kernels/backends.h"

namespace vitrine::testing {
namespace {

class RmsNormAddTest : public ::testing::TestWithParam<BackendCase> {};

TEST_P(RmsNormAddTest, AddsTheNormalisedRows) {
  for (const int columns : {1, 8, 33, 576}) {
    SCOPED_TRACE(columns);
    Harness harness(GetParam());
    Random random(static_cast<uint32_t>(columns));
    constexpr int kRows = 3;
    const std::vector<float> input = random.Normal(int64_t{kRows} * columns, 2.0f);
    const std::vector<float> weight = random.Normal(columns);
    const std::vector<float> residual = random.Normal(int64_t{kRows} * columns);
    const DeviceSpan<float> output = harness.Upload(residual);
    harness->RmsNormAdd({.input = harness.Upload(input),
                         .weight = harness.Upload(weight),
                         .epsilon = 1e-3f,
                         .rows = kRows,
                         .columns = columns,
                         .output = output});
    std::vector<Bounded> expected;
    for (size_t begin = 0; begin < input.size(); begin += weight.size()) {
      double squares = 0;
      for (size_t c = 0; c < weight.size(); ++c) squares += std::pow(input[begin + c], 2.0);
      const double scale = 1 / std::sqrt(squares / columns + double{1e-3f});
      for (size_t c = 0; c < weight.size(); ++c) {
        const double y = input[begin + c] * scale * weight[c];
        const double sum = residual[begin + c] + y;
        expected.push_back(
            {sum, (std::fabs(y) * (columns / 2.0 + 8) + std::fabs(sum)) * kF32Rounding});
      }
    }
    ExpectClose(harness.Download(output), expected);
  }
}

VITRINE_INSTANTIATE_BACKENDS(RmsNormAddTest);

}  // namespace
}  // namespace vitrine::testing
