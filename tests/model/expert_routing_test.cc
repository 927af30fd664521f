#include "model/expert_routing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace vitrine {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::IsEmpty;

constexpr float kTolerance = 1e-6f;  // Weights are rounded to f32 once.

TEST(ExpertRoutingTest, RowsGoToTheExpertsOfTheirLargestLogits) {
  ExpertRouting routing({.count = 3, .per_token = 2, .d_ff = 1}, 4);
  const std::vector<float> logits = {std::log(1.0f), std::log(2.0f), std::log(5.0f),  //
                                     0.0f,           -1.0f,          0.0f,            //
                                     std::log(6.0f), std::log(3.0f), std::log(1.0f)};
  routing.Choose(logits, 3);
  EXPECT_EQ(routing.columns(), 3);
  EXPECT_THAT(routing.OfExpert(0).ids, ElementsAre(1, 2));
  EXPECT_THAT(routing.OfExpert(1).ids, ElementsAre(0, 2));
  EXPECT_THAT(routing.OfExpert(2).ids, ElementsAre(0, 1));
  // Those of a softmax over all experts.
  EXPECT_THAT(routing.OfExpert(1).scales,
              ElementsAre(FloatNear(0.25f, kTolerance), FloatNear(0.3f, kTolerance)));
  EXPECT_THAT(routing.OfShared().ids, ElementsAre(0, 1, 2));
}

TEST(ExpertRoutingTest, WeightsOfTheChosenMaySumToOne) {
  ExpertRouting routing({.count = 3, .per_token = 2, .d_ff = 1, .normalizes_weights = true}, 1);
  routing.Choose(std::vector<float>{std::log(1.0f), std::log(2.0f), std::log(6.0f)}, 1);
  EXPECT_THAT(routing.OfExpert(0).ids, IsEmpty());
  EXPECT_THAT(routing.OfExpert(1).scales, ElementsAre(FloatNear(0.25f, kTolerance)));
  EXPECT_THAT(routing.OfExpert(2).scales, ElementsAre(FloatNear(0.75f, kTolerance)));
}

TEST(ExpertRoutingTest, TheSharedExpertWeighsEveryRow) {
  ExpertRouting routing({.count = 2, .per_token = 1, .d_ff = 1, .d_shared = 8}, 2);
  routing.Choose(std::vector<float>{0, 1, 0, 1, 0, std::log(3.0f)}, 2);
  EXPECT_EQ(routing.columns(), 3);
  EXPECT_THAT(routing.OfExpert(1).ids, ElementsAre(0));
  EXPECT_THAT(routing.OfExpert(0).ids, ElementsAre(1));
  EXPECT_THAT(routing.OfShared().scales,
              ElementsAre(FloatNear(0.5f, kTolerance), FloatNear(0.75f, kTolerance)));
}

// A file or an overflow may make logits that are no numbers: every row still has its experts.
TEST(ExpertRoutingTest, LogitsThatAreNoNumbersChooseToo) {
  ExpertRouting routing({.count = 4, .per_token = 2, .d_ff = 1}, 2);
  routing.Choose(std::vector<float>(8, std::nanf("")), 2);
  int rows = 0;
  for (int e = 0; e < 4; ++e) rows += routing.OfExpert(e).size();
  EXPECT_EQ(rows, 4);
}

TEST(ExpertRoutingTest, ARowDoesNotDependOnItsNeighbours) {
  constexpr int kExperts = 16;
  constexpr int kRows = 50;
  const ExpertConfig config = {.count = kExperts, .per_token = 4, .d_ff = 1};
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> logits(kRows * kExperts);
  for (float& logit : logits) logit = normal(random);
  ExpertRouting together(config, kRows);
  together.Choose(logits, kRows);
  ExpertRouting alone(config, 1);
  for (int row = 0; row < kRows; ++row) {
    alone.Choose(std::span(logits).subspan(static_cast<size_t>(row * kExperts), kExperts), 1);
    for (int e = 0; e < kExperts; ++e) {
      const ExpertRouting::Rows rows = together.OfExpert(e);
      const auto found = std::ranges::find(rows.ids, row);
      ASSERT_EQ(found != rows.ids.end(), alone.OfExpert(e).size() == 1) << row << " " << e;
      if (found == rows.ids.end()) continue;
      EXPECT_EQ(rows.scales[static_cast<size_t>(found - rows.ids.begin())],
                alone.OfExpert(e).scales[0]);
    }
  }
}

}  // namespace
}  // namespace vitrine
