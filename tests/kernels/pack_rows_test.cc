#include "kernels/pack_rows.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/kernels/backends.h"

namespace vitrine::testing {
namespace {

class PackRowsTest : public ::testing::TestWithParam<BackendCase> {};

TEST_P(PackRowsTest, RowsComeOutAsTheyWentIn) {
  for (const int columns : {8, 33}) {
    for (const int rows : {1, 2, 17}) {
      Harness harness(GetParam());
      Random random(2);
      const std::vector<float> input = random.Normal(int64_t{rows} * columns);
      RowBuffer* output = harness.NewRows(rows, {harness.Identity(columns)});
      harness->PackRows({.input = harness.Upload(input), .rows = rows, .output = output});
      EXPECT_EQ(harness.Read(output, rows), input);
    }
  }
}

TEST_P(PackRowsTest, ConsumersOfEveryTypeReadThem) {
  for (const DType dtype : kRequiredTypes) {
    for (const int rows : {1, 17}) {
      SCOPED_TRACE(std::string(TraitsOf(dtype).name) + ", " + std::to_string(rows) + " rows");
      Harness harness(GetParam());
      Random random(3);
      const Weights weights = RandomWeights(dtype, 19, 96, random);
      const PackedMatrix* packed = harness.Pack({&weights});
      const std::vector<float> input = random.Normal(int64_t{rows} * 96);
      const FedRows fed = {.rows = harness.NewRows(rows, {packed}),
                           .count = rows,
                           .columns = 96,
                           .values = {input.begin(), input.end()},
                           .errors = std::vector<double>(input.size())};
      harness->PackRows({.input = harness.Upload(input), .rows = rows, .output = fed.rows});
      const DeviceSpan<float> output = harness.Zeros(int64_t{rows} * 19);
      harness->MatMul({.input = fed.rows, .weight = packed, .output = output, .rows = rows});
      ExpectClose(harness.Download(output), MatMulOracle(GetParam(), fed, weights, {}));
    }
  }
}

VITRINE_INSTANTIATE_BACKENDS(PackRowsTest);

}  // namespace
}  // namespace vitrine::testing
