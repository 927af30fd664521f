#include "kernels/layer_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/kernels/backends.h"
#include "tests/kernels/golden.h"

namespace vitrine::testing {
namespace {

class LayerNormTest : public ::testing::TestWithParam<BackendCase> {};

struct Problem {
  std::vector<float> input{};
  std::vector<float> weight{};
  std::vector<float> bias{};
  float epsilon = 1e-5f;
};

std::vector<float> Compute(Harness& harness, const Problem& problem) {
  const auto columns = static_cast<int64_t>(problem.weight.size());
  const int rows = static_cast<int>(static_cast<int64_t>(problem.input.size()) / columns);
  RowBuffer* output = harness.NewRows(rows, {harness.Identity(columns)});
  harness->LayerNorm({.input = harness.Upload(problem.input),
                      .weight = harness.Upload(problem.weight),
                      .bias = harness.UploadOptional(problem.bias),
                      .epsilon = problem.epsilon,
                      .rows = rows,
                      .output = output});
  return harness.Read(output, rows);
}

// The mean and the centred values are off by the roundings of the input's own magnitude, which the
// division by a small deviation magnifies; then as for any norm.
std::vector<Bounded> Oracle(const Problem& problem) {
  const size_t columns = problem.weight.size();
  const auto count = static_cast<double>(columns);
  std::vector<Bounded> expected;
  for (size_t begin = 0; begin < problem.input.size(); begin += columns) {
    const std::span<const float> row = std::span(problem.input).subspan(begin, columns);
    double mean = 0;
    double magnitude = 0;
    for (const float x : row) mean += x / count;
    double variance = 0;
    for (const float x : row) {
      variance += (x - mean) * (x - mean) / count;
      magnitude += std::fabs(x) / count;
    }
    const double scale = 1 / std::sqrt(variance + double{problem.epsilon});
    const double shift = (count + 2) * kF32Rounding * magnitude * scale;
    for (size_t c = 0; c < columns; ++c) {
      const double weight = problem.weight[c];
      const double bias = problem.bias.empty() ? 0.0 : double{problem.bias[c]};
      const double y = (row[c] - mean) * scale * weight;
      const double error = (std::fabs(y) * (count / 2 + 8) + std::fabs(y + bias)) * kF32Rounding;
      expected.push_back({y + bias, error + 2 * shift * std::fabs(weight)});
    }
  }
  return expected;
}

TEST_P(LayerNormTest, MatchesTheOracle) {
  for (const int64_t columns : {2, 8, 33, 576}) {
    SCOPED_TRACE(columns);
    Harness harness(GetParam());
    Random random(static_cast<uint32_t>(columns));
    Problem problem = {.input = random.Normal(5 * columns, 3.0f),
                       .weight = random.Normal(columns),
                       .bias = random.Normal(columns)};
    for (float& x : problem.input) x += 2.0f;
    ExpectClose(Compute(harness, problem), Oracle(problem));
    problem.bias.clear();
    ExpectClose(Compute(harness, problem), Oracle(problem));
  }
}

TEST_P(LayerNormTest, MatchesTheGoldenRows) {
  const GoldenValue cases = GoldenValue("layer_norm.json")["cases"];
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(cases[i]["name"].Text());
    Harness harness(GetParam());
    const Problem problem = {.input = cases[i]["x"].Floats(),
                             .weight = cases[i]["weight"].Floats(),
                             .bias = cases[i]["bias"].Floats(),
                             .epsilon = static_cast<float>(cases[i]["eps"].Number())};
    std::vector<Bounded> expected = Oracle(problem);
    const std::vector<double> golden = cases[i]["y"].Doubles();
    for (size_t j = 0; j < golden.size(); ++j) {
      // The file has f64 inputs: rounding them moves the mean as much as a sum in f32 does.
      EXPECT_NEAR(expected[j].value, golden[j], 2 * expected[j].error + 1e-11);
      expected[j] = {golden[j], 3 * expected[j].error + 1e-11};
    }
    ExpectClose(Compute(harness, problem), expected);
  }
}

// The residual stream itself, as OPT 350M and Bloom's variant have it.
TEST_P(LayerNormTest, NormalisesInPlace) {
  for (const int64_t columns : {8, 33, 576}) {
    for (const int rows : {1, 5, 40}) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns));
      Harness harness(GetParam(), 2);
      Random random(static_cast<uint32_t>(columns));
      const Problem problem = {.input = random.Normal(rows * columns, 3.0f),
                               .weight = random.Normal(columns),
                               .bias = random.Normal(columns)};
      RowBuffer* output = harness.NewRows(rows, {harness.Identity(columns)});
      const DeviceSpan<float> stream = harness.Upload(problem.input);
      harness->LayerNorm({.input = stream,
                          .weight = harness.Upload(problem.weight),
                          .bias = harness.Upload(problem.bias),
                          .epsilon = problem.epsilon,
                          .rows = rows,
                          .output = output,
                          .normalized = stream});
      ExpectClose(harness.Download(stream), Oracle(problem));
      ExpectClose(harness.Read(output, rows), Oracle(problem));
    }
  }
}

TEST_P(LayerNormTest, ARowDoesNotDependOnItsNeighbours) {
  constexpr int64_t kColumns = 200;
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

VITRINE_INSTANTIATE_BACKENDS(LayerNormTest);

}  // namespace
}  // namespace vitrine::testing
