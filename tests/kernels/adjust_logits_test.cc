#include "kernels/adjust_logits.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <vector>

#include "kernels/sampling_math.h"
#include "tests/kernels/backends.h"

namespace vitrine::testing {
namespace {

class AdjustLogitsOpTest : public ::testing::TestWithParam<BackendCase> {};

constexpr float kSpecial[] = {
    std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN(),
    std::numeric_limits<float>::infinity(),  -std::numeric_limits<float>::infinity(),
    std::numeric_limits<float>::max(),       std::numeric_limits<float>::lowest()};

std::vector<uint32_t> BitsOf(std::span<const float> values) {
  std::vector<uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

// The storage of an adjustment's lists.
struct Lists {
  std::vector<TokenBias> biases;
  std::vector<int32_t> allowed;
  std::vector<int32_t> banned;
  std::vector<int32_t> withheld;
  std::vector<SeenToken> seen;
};

Lists RandomLists(int vocabulary, int variant, Random& random) {
  Lists lists;
  const auto some = [&](int most) {
    std::vector<int32_t> ids = random.Permutation(vocabulary);
    ids.resize(static_cast<size_t>(random.Below(std::min(most, vocabulary) + 1)));
    return ids;
  };
  if (variant % 2 == 0) {
    for (const int32_t id : some(700))
      lists.biases.push_back({id, 0.25f * static_cast<float>(id % 9)});
  }
  if (variant % 3 == 0) lists.allowed = some(vocabulary);
  if (variant % 4 < 2) lists.banned = some(30);
  if (variant % 5 < 2) lists.withheld = some(4);
  if (variant % 3 != 1) {
    for (const int32_t id : some(1500)) lists.seen.push_back({id, id % 4});
  }
  return lists;
}

TEST_P(AdjustLogitsOpTest, EveryBackendGivesTheDefinedBits) {
  for (const int vocabulary : {1, 17, 1000, 5003}) {
    SCOPED_TRACE(vocabulary);
    Random random(static_cast<uint32_t>(vocabulary));
    constexpr int kRows = 5;
    std::vector<float> logits = random.Normal(int64_t{kRows} * vocabulary, 3.0f);
    // Among the finite ones what rules must keep, and the largest, which they must not make more.
    for (size_t i = 3; i < logits.size(); i += 7) logits[i] = kSpecial[i / 7 % std::size(kSpecial)];
    std::vector<Lists> lists;
    for (int i = 0; i < 12; ++i) lists.push_back(RandomLists(vocabulary, i, random));
    std::vector<LogitAdjustment> adjustments;
    const auto size = static_cast<size_t>(vocabulary);
    std::vector<float> expected;
    for (const Lists& list : lists) {
      const int row = random.Below(kRows);
      adjustments.push_back({.row = row,
                             .biases = list.biases,
                             .allowed = list.allowed,
                             .banned = list.banned,
                             .withheld = list.withheld,
                             .seen = list.seen,
                             .repetition_penalty = 0.5f + 0.1f * static_cast<float>(row),
                             .presence_penalty = 0.3f,
                             .frequency_penalty = -0.7f});
      std::vector<float> one(size);
      AdjustLogitsRow(std::span(logits).subspan(static_cast<size_t>(row) * size, size),
                      adjustments.back(), one);
      expected.insert(expected.end(), one.begin(), one.end());
    }
    Harness harness(GetParam());
    const DeviceSpan<float> output = harness.Zeros(static_cast<int64_t>(expected.size()));
    harness->AdjustLogits({.logits = harness.Upload(logits),
                           .adjustments = adjustments,
                           .vocabulary = vocabulary,
                           .output = output});
    EXPECT_EQ(BitsOf(harness.Download(output)), BitsOf(expected));
  }
}

VITRINE_INSTANTIATE_BACKENDS(AdjustLogitsOpTest);

}  // namespace
}  // namespace vitrine::testing
