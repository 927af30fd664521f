#include "kernels/sampling_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tests/kernels/golden.h"

namespace vitrine {
namespace {

using testing::GoldenValue;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<uint64_t> WeightsOf(const std::vector<float>& logits, const SampleRow& row) {
  const float top = *std::max_element(logits.begin(), logits.end());
  const SampleFilter filter = MakeSampleFilter(logits, top, row);
  std::vector<uint64_t> weights;
  for (size_t id = 0; id < logits.size(); ++id) {
    weights.push_back(filter.Weight(logits[id], static_cast<int32_t>(id)));
  }
  return weights;
}

std::vector<float> RandomLogits(int vocabulary, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> logits(static_cast<size_t>(vocabulary));
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// `order` holds the tokens that are left, the most likely first. Surprise and entropy without
// logarithms: both lose the same constant.
void KeepTypical(const std::vector<float>& logits, const SampleRow& row, float top,
                 std::vector<int>& order) {
  const auto weight = [&](int id) {
    return SampleWeight(logits[static_cast<size_t>(id)], top, row.temperature);
  };
  const auto depth = [&](int id) {
    return int64_t{SampleDepth(logits[static_cast<size_t>(id)], top, row.temperature)};
  };
  std::erase_if(order, [&](int id) { return weight(id) == 0; });
  uint64_t total = 0;
  WideSum depths = 0;
  for (const int id : order) {
    total += weight(id);
    depths += WideSum{weight(id)} * static_cast<uint64_t>(depth(id));
  }
  const auto mean = static_cast<int64_t>(depths / total);
  const auto distance = [&](int id) { return std::abs(depth(id) - mean); };
  std::vector<int> nearest = order;
  std::ranges::stable_sort(nearest, {}, distance);
  uint64_t sum = 0;
  int64_t reach = 0;
  for (size_t i = 0; sum < TopPMass(row.typical_p, total); ++i) {
    sum += weight(nearest[i]);
    reach = distance(nearest[i]);
  }
  std::erase_if(order, [&](int id) { return distance(id) > reach; });
}

// The same filter from its definition: sort, cut, cut, cut.
std::vector<uint64_t> SortedWeights(const std::vector<float>& logits, const SampleRow& row) {
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](int id) { return logits[static_cast<size_t>(id)]; };
  std::ranges::sort(order,
                    [&](int a, int b) { return at(a) > at(b) || (at(a) == at(b) && a < b); });
  const float top = at(order[0]);
  if (row.top_k > 0 && static_cast<size_t>(row.top_k) < order.size()) {
    const float least = at(order[static_cast<size_t>(row.top_k) - 1]);
    std::erase_if(order, [&](int id) { return at(id) < least; });
  }
  const auto weight = [&](int id) { return SampleWeight(at(id), top, row.temperature); };
  if (row.typical_p < 1.0f) KeepTypical(logits, row, top, order);
  if (row.top_p < 1.0f) {
    uint64_t total = 0;
    for (const int id : order) total += weight(id);
    const uint64_t target = TopPMass(row.top_p, total);
    uint64_t sum = 0;
    size_t kept = 0;
    while (sum < target) sum += weight(order[kept++]);
    order.resize(kept);
  }
  std::vector<uint64_t> weights(logits.size());
  const uint64_t least = row.min_p > 0 ? MinPWeight(row.min_p, weight(order[0])) : 1;
  for (const int id : order) {
    if (weight(id) >= least) weights[static_cast<size_t>(id)] = weight(id);
  }
  return weights;
}

TEST(PhiloxTest, MatchesThePublishedVectors) {
  // Known answers of the authors' Random123 distribution, philox4x32 with 10 rounds.
  using Block = std::array<uint32_t, 4>;
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, 0), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({~0u, ~0u, ~0u, ~0u}, ~uint64_t{0}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(SamplingMathTest, WeightsAreExponentialsOfTheLogits) {
  // exp: two roundings in the reduction, eight in the polynomial that reach the result through
  // factors below 1/2 but for the last two, one in the quotient amplified by |x| <= 28; then
  // flooring to an integer.
  for (const float temperature : {0.25f, 1.0f, 1.7f}) {
    for (int step = 0; step < 2500; ++step) {
      const float logit = 5.0f - 0.0137f * static_cast<float>(step);
      const double x = (double{logit} - 5.0) / double{temperature};
      const double exact = std::exp(x) * static_cast<double>(kTopWeight);
      const auto weight = static_cast<double>(SampleWeight(logit, 5.0f, temperature));
      if (x > -27.9) {
        EXPECT_NEAR(weight, exact, exact * (4 - 2 * x) * 0x1p-24 + 1) << x;
      }
      if (x < -28.1) {
        EXPECT_EQ(weight, 0) << x;
      }
    }
  }
  EXPECT_EQ(SampleWeight(3.0f, 3.0f, kLeastTemperature), kTopWeight);
  EXPECT_EQ(SampleWeight(std::nextafter(3.0f, 0.0f), 3.0f, kLeastTemperature), 0u);
  EXPECT_EQ(SampleWeight(0.0f, 0x1p-149f, kLeastTemperature), kTopWeight);
  EXPECT_EQ(SampleWeight(-kInfinity, 3.0f, 1e38f), 0u);
  EXPECT_EQ(SampleWeight(-3e38f, 3e38f, 1.0f), 0u);
}

TEST(SamplingMathTest, KeysOrderAsLogitsDo) {
  const std::vector<float> ascending = {-kInfinity, -3e38f, -1.0f, -1e-45f,  0.0f,
                                        1e-45f,     1.0f,   3e38f, kInfinity};
  for (size_t i = 1; i < ascending.size(); ++i) {
    EXPECT_LT(LogitKey(ascending[i - 1]), LogitKey(ascending[i]));
  }
  EXPECT_EQ(LogitKey(-0.0f), LogitKey(0.0f));
  EXPECT_EQ(LogitKey(kInfinity), kInfinityKey);
  EXPECT_EQ(LogitKey(-kInfinity), kNegativeInfinityKey);
}

TEST(SamplingMathTest, KeepsTheGoldenSets) {
  const GoldenValue cases = GoldenValue("sampling.json")["cases"];
  int compared = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    const GoldenValue params = cases[i]["params"];
    SCOPED_TRACE(cases[i]["name"].Text());
    const auto param = [&](const char* name, double otherwise) {
      return params.Has(name) ? params[name].Number() : otherwise;
    };
    const std::vector<float> logits = cases[i]["logits"].Floats();
    const std::vector<uint64_t> weights =
        WeightsOf(logits, {.temperature = static_cast<float>(param("temperature", 1)),
                           .top_k = static_cast<int32_t>(param("top_k", 0)),
                           .typical_p = static_cast<float>(param("typical", 1)),
                           .top_p = static_cast<float>(param("top_p", 1)),
                           .min_p = static_cast<float>(param("min_p", 0))});
    const GoldenValue expected = cases[i]["hf_order"];
    const std::vector<double> kept = expected["kept"].Doubles();
    const std::vector<double> probabilities = expected["probs"].Doubles();
    const double total =
        static_cast<double>(std::accumulate(weights.begin(), weights.end(), uint64_t{0}));
    const bool is_tied = cases[i]["note"].Text().find("ties at the border") != std::string::npos;
    size_t count = 0;
    for (size_t id = 0; id < weights.size(); ++id) {
      if (weights[id] == 0) continue;
      ASSERT_LT(count, kept.size());
      // Among tokens tied at the border any choice is right; it must be as likely.
      if (!is_tied) {
        EXPECT_EQ(static_cast<double>(id), kept[count]);
      }
      if (!is_tied) {
        EXPECT_NEAR(static_cast<double>(weights[id]) / total, probabilities[count],
                    probabilities[count] * 1e-5 + 1e-6);
      }
      ++count;
    }
    EXPECT_EQ(count, kept.size());
    ++compared;
  }
  EXPECT_EQ(compared, 21);
}

TEST(SamplingMathTest, TypicalMayDropTheMostLikelyTokenAndMinPTakesTheBestOfTheRest) {
  // 0.4 and six times 0.1: the entropy is 1.75 nats, 0.55 from the surprise of the six and 0.83
  // from that of the best.
  std::vector<float> logits(7, std::log(0.1f));
  logits[3] = std::log(0.4f);
  const SampleRow row = {.temperature = 1.0f, .typical_p = 0.5f, .min_p = 0.9f};
  const std::vector<uint64_t> weights = WeightsOf(logits, row);
  for (size_t id = 0; id < weights.size(); ++id) EXPECT_EQ(weights[id] > 0, id != 3) << id;
}

TEST(AdjustLogitsTest, GivesTheGoldenPenalties) {
  const GoldenValue golden = GoldenValue("sampling.json")["penalties"];
  const std::vector<float> logits = golden["logits"].Floats();
  std::vector<SeenToken> seen;
  for (size_t id = 0; id < logits.size(); ++id) {
    const std::string key = std::to_string(id);
    if (!golden["counts_of_seen_tokens"].Has(key.c_str())) continue;
    const double count = golden["counts_of_seen_tokens"][key.c_str()].Number();
    seen.push_back({static_cast<int32_t>(id), static_cast<int32_t>(count)});
  }
  ASSERT_EQ(seen.size(), 4u);
  const GoldenValue cases = golden["cases"];
  for (size_t i = 0; i < cases.size(); ++i) {
    std::vector<float> adjusted(logits.size());
    AdjustLogitsRow(logits,
                    {.seen = seen,
                     .repetition_penalty = static_cast<float>(cases[i]["repetition"].Number()),
                     .presence_penalty = static_cast<float>(cases[i]["presence"].Number()),
                     .frequency_penalty = static_cast<float>(cases[i]["frequency"].Number())},
                    adjusted);
    const std::vector<double> expected = cases[i]["result"].Doubles();
    for (size_t id = 0; id < expected.size(); ++id) {
      EXPECT_NEAR(adjusted[id], expected[id], std::abs(expected[id]) * 1e-5 + 1e-6);
    }
  }
  EXPECT_EQ(cases.size(), 5u);
}

TEST(AdjustLogitsTest, BiasesComeFirstThenBansThenPenalties) {
  const std::vector<float> logits = {1.0f, -1.0f, 2.0f, 4.0f, 0.5f};
  const std::vector<TokenBias> biases = {{0, -3.0f}, {2, 1.0f}};
  const std::vector<int32_t> allowed = {0, 1, 2, 3};
  const std::vector<int32_t> banned = {1};
  const std::vector<int32_t> withheld = {3};
  const std::vector<SeenToken> seen = {{0, 0}, {1, 5}, {2, 2}};
  std::vector<float> adjusted(logits.size());
  AdjustLogitsRow(logits,
                  {.biases = biases,
                   .allowed = allowed,
                   .banned = banned,
                   .withheld = withheld,
                   .seen = seen,
                   .repetition_penalty = 2.0f,
                   .presence_penalty = 0.25f,
                   .frequency_penalty = 0.5f},
                  adjusted);
  // Token 0 became negative before the repetition penalty, so it is multiplied; only the prompt has
  // it, so nothing is subtracted.
  EXPECT_EQ(adjusted, (std::vector<float>{-4.0f, -kInfinity, 0.25f, -kInfinity, -kInfinity}));
}

TEST(AdjustLogitsTest, FiniteLogitsStayFiniteAndBrokenOnesBroken) {  // Cases 37, 43, 49.
  constexpr float kLargest = std::numeric_limits<float>::max();
  const std::vector<float> logits = {3e38f, -3e38f, 1.0f, -kInfinity, std::nanf(""), kInfinity};
  const std::vector<TokenBias> biases = {{0, 3e38f}, {1, -3e38f}, {3, 1e9f}, {4, 1.0f}};
  const std::vector<int32_t> banned = {4, 5};
  const std::vector<SeenToken> seen = {{0, 1}, {1, 1}, {2, 1}, {3, 1}};
  std::vector<float> adjusted(logits.size());
  AdjustLogitsRow(logits,
                  {.biases = biases, .banned = banned, .seen = seen, .repetition_penalty = 1e-38f},
                  adjusted);
  EXPECT_EQ(adjusted[0], kLargest);
  EXPECT_LT(adjusted[1], 0.0f);
  EXPECT_GE(adjusted[1], -kLargest);
  EXPECT_NEAR(adjusted[2], 1e38f, 1e38f * 0x1p-20f);
  EXPECT_EQ(adjusted[3], -kInfinity);
  EXPECT_TRUE(std::isnan(adjusted[4]));
  EXPECT_EQ(adjusted[5], kInfinity);
  EXPECT_EQ(SampleToken(adjusted, {}), kNoToken);
}

TEST(SamplingMathTest, TiesAtTheBorderOfTopPKeepTheLowestIds) {
  const std::vector<float> logits = {1.0f, 2.0f, -3.0f, 0.0f, -1.0f, 1.0f, 0.0f, 1.0f};
  const std::vector<uint64_t> weights = WeightsOf(logits, {.temperature = 1.0f, .top_p = 0.7f});
  for (size_t id = 0; id < weights.size(); ++id) {
    EXPECT_EQ(weights[id] > 0, id == 0 || id == 1 || id == 5) << id;
  }
}

TEST(SamplingMathTest, SelectionEqualsSorting) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const int vocabulary = 1 + static_cast<int>(random() % 400);
    std::vector<float> logits = RandomLogits(vocabulary, random());
    if (round % 3 == 0) {  // Many ties.
      for (float& logit : logits) logit = std::round(logit);
    }
    if (round % 5 == 0) logits[random() % logits.size()] = -kInfinity;
    if (*std::max_element(logits.begin(), logits.end()) == -kInfinity) continue;
    const auto unit = [&] { return static_cast<float>(random() >> 8) * 0x1p-24f; };
    const SampleRow row = {.temperature = 0.1f + 2 * unit(),
                           .top_k = static_cast<int32_t>(random() % 500),
                           .typical_p = std::max(0x1p-20f, round % 7 < 3 ? unit() : 1.0f),
                           .top_p = std::max(0x1p-20f, round % 2 == 0 ? unit() : 1.0f),
                           .min_p = round % 4 < 2 ? 0.3f * unit() : 0.0f};
    EXPECT_EQ(WeightsOf(logits, row), SortedWeights(logits, row)) << "round " << round;
  }
}

TEST(SamplingMathTest, ArgMaxIsTheLowestIdOfTheLargestLogit) {
  EXPECT_EQ(ArgMax(std::vector<float>{1.0f, 3.0f, 3.0f, -kInfinity}), 1);
  EXPECT_EQ(ArgMax(std::vector<float>{-kInfinity, -3e38f}), 1);
  EXPECT_EQ(ArgMax(std::vector<float>{-0.0f, 0.0f}), 0);
}

TEST(SamplingMathTest, UnusableRowsGiveNoToken) {
  for (const float temperature : {0.0f, 1.0f}) {
    const SampleRow row = {.temperature = temperature};
    EXPECT_EQ(SampleToken(std::vector<float>{1.0f, std::nanf(""), 2.0f}, row), kNoToken);
    EXPECT_EQ(SampleToken(std::vector<float>{1.0f, -std::nanf("")}, row), kNoToken);
    EXPECT_EQ(SampleToken(std::vector<float>{1.0f, kInfinity}, row), kNoToken);
    EXPECT_EQ(SampleToken(std::vector<float>{-kInfinity, -kInfinity}, row), kNoToken);
    EXPECT_EQ(SampleToken(std::vector<float>{-kInfinity, -1e38f}, row), 1);
  }
}

TEST(SamplingMathTest, TinyTemperatureIsGreedy) {
  const std::vector<float> logits = RandomLogits(1000, 3);
  const int32_t best = ArgMax(logits);
  for (const float temperature : {1e-45f, 1e-38f, kLeastTemperature, 1e-6f}) {
    for (int64_t position = 0; position < 20; ++position) {
      EXPECT_EQ(SampleToken(logits, {.temperature = temperature, .position = position}), best);
    }
  }
}

TEST(SamplingMathTest, DrawsDependOnSeedPositionAndChoice) {
  const std::vector<float> logits(50000, 0.0f);
  const SampleRow row = {.temperature = 1.0f, .seed = 1, .choice = 2, .position = 3};
  const int32_t token = SampleToken(logits, row);
  EXPECT_EQ(SampleToken(logits, row), token);
  SampleRow other = row;
  other.seed = 2;
  EXPECT_NE(SampleToken(logits, other), token);
  other = row;
  other.choice = 3;
  EXPECT_NE(SampleToken(logits, other), token);
  other = row;
  other.position = 4;
  EXPECT_NE(SampleToken(logits, other), token);
  other.position = 3 + (int64_t{1} << 32);
  EXPECT_NE(SampleToken(logits, other), token);
}

}  // namespace
}  // namespace vitrine
