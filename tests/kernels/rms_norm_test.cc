#include "kernels/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/kernels/backends.h"
#include "tests/kernels/golden.h"

namespace vitrine::testing {
namespace {

class RmsNormTest : public ::testing::TestWithParam<BackendCase> {};

struct Problem {
  std::vector<float> input;
  std::vector<float> weight;
  float epsilon = 1e-5f;
};

std::vector<float> Compute(Harness& harness, const Problem& problem) {
  const auto columns = static_cast<int64_t>(problem.weight.size());
  const int rows = static_cast<int>(static_cast<int64_t>(problem.input.size()) / columns);
  RowBuffer* output = harness.NewRows(rows, {harness.Identity(columns)});
  harness->RmsNorm({.input = harness.Upload(problem.input),
                    .weight = harness.Upload(problem.weight),
                    .epsilon = problem.epsilon,
                    .rows = rows,
                    .output = output});
  return harness.Read(output, rows);
}

// The sum of squares has an error of (columns + 1) / 2 roundings after the root; then come mean,
// sum with epsilon, root, quotient and two products.
double RelativeError(int64_t columns) {
  return (static_cast<double>(columns) / 2 + 8) * kF32Rounding;
}

std::vector<Bounded> Oracle(const Problem& problem) {
  const size_t columns = problem.weight.size();
  std::vector<Bounded> expected;
  for (size_t begin = 0; begin < problem.input.size(); begin += columns) {
    double squares = 0;
    for (size_t c = 0; c < columns; ++c) {
      squares += double{problem.input[begin + c]} * problem.input[begin + c];
    }
    const double scale =
        1 / std::sqrt(squares / static_cast<double>(columns) + double{problem.epsilon});
    for (size_t c = 0; c < columns; ++c) {
      const double y = problem.input[begin + c] * scale * problem.weight[c];
      expected.push_back({y, std::fabs(y) * RelativeError(static_cast<int64_t>(columns))});
    }
  }
  return expected;
}

TEST_P(RmsNormTest, MatchesTheOracle) {
  for (const int64_t columns : {1, 8, 20, 32, 33, 576}) {
    for (const int64_t rows : {1, 2, 3, 17, 33}) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns));
      Harness harness(GetParam());
      Random random(static_cast<uint32_t>(columns));
      const Problem problem = {.input = random.Normal(rows * columns, 3.0f),
                               .weight = random.Normal(columns)};
      ExpectClose(Compute(harness, problem), Oracle(problem));
    }
  }
}

TEST_P(RmsNormTest, MatchesTheGoldenRows) {
  const GoldenValue cases = GoldenValue("rms_norm.json")["cases"];
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(cases[i]["name"].Text());
    Harness harness(GetParam());
    const Problem problem = {.input = cases[i]["x"].Floats(),
                             .weight = cases[i]["weight"].Floats(),
                             .epsilon = static_cast<float>(cases[i]["eps"].Number())};
    std::vector<Bounded> expected;
    for (const double y : cases[i]["y"].Doubles()) {
      // The file has f64 inputs, so x, the weight and epsilon carry a rounding more.
      const double relative = RelativeError(static_cast<int64_t>(problem.weight.size()));
      expected.push_back({y, std::fabs(y) * (relative + 3 * kF32Rounding)});
    }
    ExpectClose(Compute(harness, problem), expected);
  }
}

TEST_P(RmsNormTest, ARowDoesNotDependOnItsNeighbours) {
  constexpr int64_t kColumns = 576;
  Random random(9);
  Harness harness(GetParam());
  const Problem all = {.input = random.Normal(17 * kColumns), .weight = random.Normal(kColumns)};
  const std::vector<float> together = Compute(harness, all);
  for (const int64_t row : {0, 1, 16}) {
    const auto begin = all.input.begin() + row * kColumns;
    const Problem one = {.input = {begin, begin + kColumns}, .weight = all.weight};
    const auto expected = together.begin() + row * kColumns;
    EXPECT_EQ(Compute(harness, one), std::vector<float>(expected, expected + kColumns));
  }
}

VITRINE_INSTANTIATE_BACKENDS(RmsNormTest);

}  // namespace
}  // namespace vitrine::testing
