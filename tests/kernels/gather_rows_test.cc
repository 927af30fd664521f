#include "kernels/gather_rows.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/backends.h"

namespace vitrine::testing {
namespace {

class GatherRowsTest : public ::testing::TestWithParam<BackendCase> {};

TEST_P(GatherRowsTest, CopiesRows) {
  for (const int columns : {1, 8, 33, 576}) {
    Harness harness(GetParam());
    Random random(4);
    const std::vector<float> input = random.Normal(int64_t{19} * columns);
    const std::vector<int32_t> ids = {18, 3, 3, 0};
    const DeviceSpan<float> output = harness.Zeros(int64_t{4} * columns);
    harness->GatherRows(
        {.input = harness.Upload(input), .row_ids = ids, .columns = columns, .output = output});
    std::vector<float> expected;
    for (const int32_t id : ids) {
      const auto row = input.begin() + int64_t{id} * columns;
      expected.insert(expected.end(), row, row + columns);
    }
    EXPECT_EQ(harness.Download(output), expected);
  }
}

VITRINE_INSTANTIATE_BACKENDS(GatherRowsTest);

}  // namespace
}  // namespace vitrine::testing
