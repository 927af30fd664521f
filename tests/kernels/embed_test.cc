#include "kernels/embed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "tests/kernels/backends.h"
#include "tests/kernels/paged.h"

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
    // Types without a kernel of their own are stored as F16 there.
    const bool is_f16 = GetParam().backend == "cuda" && GetParam().is_fast() &&
                        std::ranges::find(kOptionalTypes, dtype) != std::end(kOptionalTypes);
    std::vector<Bounded> expected;
    for (const int32_t id : ids) {
      for (int64_t c = 0; c < columns; ++c) {
        const double y = double{scale} * table.values[static_cast<size_t>(id * columns + c)];
        // The decoded value has the bits of the reference decoder; the scale rounds once.
        double error = std::fabs(y) * kF32Rounding;
        if (is_f16) error += std::fabs(y) * 0x1p-11 + double{scale} * 0x1p-25;
        expected.push_back({y, error});
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

TEST_P(EmbedTest, AddsLearnedPositions) {
  constexpr int kColumns = 40;
  Harness harness(GetParam());
  Random random(4);
  const Weights table = RandomWeights(DType::kF16, 20, kColumns, random);
  const std::vector<float> positions = random.Normal(50 * kColumns);
  const Step step({0, 3, 4}, {16, 49}, {0, 0, 0, 0, 0, 0, 0, 0}, 4);
  const std::vector<int32_t> ids = {3, 19, 0, 7};
  const std::vector<int> position_of = {16, 17, 18, 49};
  const DeviceSpan<float> output = harness.Zeros(4 * kColumns);
  harness->Embed({.table = harness.Pack({&table}),
                  .token_ids = ids,
                  .scale = 2.0f,
                  .position_table = harness.Upload(positions),
                  .batch = &step.batch(),
                  .output = output});
  std::vector<Bounded> expected;
  for (size_t r = 0; r < ids.size(); ++r) {
    for (int c = 0; c < kColumns; ++c) {
      const double token = 2.0 * table.values[static_cast<size_t>(int64_t{ids[r]} * kColumns + c)];
      const double learned = positions[static_cast<size_t>(int64_t{position_of[r]} * kColumns + c)];
      expected.push_back({token + learned, kF32Rounding * (std::fabs(token) + std::fabs(learned))});
    }
  }
  ExpectClose(harness.Download(output), expected);
}

// Ids that an earlier op has left on the device, beside ids of the host.
TEST_P(EmbedTest, ReadsDrawnTokens) {
  constexpr int kColumns = 32;
  Harness harness(GetParam());
  Random random(5);
  const Weights table = RandomWeights(DType::kF32, 20, kColumns, random);
  // Drawn where they lie: row r has its largest logit at ids[r], the last one none at all.
  const std::vector<int32_t> ids = {7, 19, 0, 11, kNoToken};
  std::vector<float> logits(ids.size() * 20, -1.0f);
  for (size_t r = 0; r + 1 < ids.size(); ++r) logits[r * 20 + static_cast<size_t>(ids[r])] = 1.0f;
  logits.back() = NAN;
  const std::vector<SampleRow> rows(ids.size());
  const DeviceSpan<int32_t> drawn = harness.Integers(static_cast<int64_t>(ids.size()));
  const std::vector<int32_t> token_ids = {DrawnToken(3), 5, DrawnToken(0), DrawnToken(1),
                                          DrawnToken(4)};
  const DeviceSpan<float> output = harness.Zeros(5 * kColumns);
  harness->Sample(
      {.logits = harness.Upload(logits), .rows = rows, .vocabulary = 20, .token_ids = drawn});
  harness->Embed(
      {.table = harness.Pack({&table}), .token_ids = token_ids, .drawn = drawn, .output = output});
  std::vector<Bounded> expected;
  for (const int32_t id : {11, 5, 7, 19, 0}) {
    for (int c = 0; c < kColumns; ++c) {
      const double y = table.values[static_cast<size_t>(int64_t{id} * kColumns + c)];
      expected.push_back({y, std::fabs(y) * (GetParam().is_fast() ? kBf16Rounding : 0.0)});
    }
  }
  ExpectClose(harness.Download(output), expected);
}

VITRINE_INSTANTIATE_BACKENDS(EmbedTest);

}  // namespace
}  // namespace vitrine::testing
