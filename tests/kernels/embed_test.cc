#include "kernels/embed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/kernels/backends.h"

namespace vitrine::testing {
namespace {

class EmbedTest : public ::testing::TestWithParam<BackendCase> {
 protected:
  void ExpectRows(DType dtype, int64_t columns) {
    SCOPED_TRACE(TraitsOf(dtype).name);
    Harness harness(GetParam());
    Random random(3);
    const Weights table = RandomWeights(dtype, 37, columns, random);
    const PackedMatrix* packed = harness.Pack({&table});
    if (packed == nullptr) return;
    const std::vector<int32_t> ids = {36, 0, 5, 5, 17, 16, 15};
    const float scale = 1.75f;
    const DeviceSpan<float> output = harness.Zeros(static_cast<int64_t>(ids.size()) * columns);
    harness->Embed({.table = packed, .token_ids = ids, .scale = scale, .output = output});
    std::vector<Bounded> expected;
    for (const int32_t id : ids) {
      for (int64_t c = 0; c < columns; ++c) {
        const double y = double{scale} * table.values[static_cast<size_t>(id * columns + c)];
        // The decoded value has the bits of the reference decoder; the scale rounds once.
        expected.push_back({y, std::fabs(y) * kF32Rounding});
      }
    }
    ExpectClose(harness.Download(output), expected);
  }
};

TEST_P(EmbedTest, ScalesDecodedRows) {
  for (const DType dtype : kRequiredTypes) ExpectRows(dtype, 96);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) ExpectRows(dtype, 8);
  for (const DType dtype : kOptionalTypes) ExpectRows(dtype, 512);
}

VITRINE_INSTANTIATE_BACKENDS(EmbedTest);

}  // namespace
}  // namespace vitrine::testing
