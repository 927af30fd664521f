#include "kernels/activated_mat_mul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "tests/kernels/backends.h"
#include "tests/kernels/golden.h"

namespace vitrine::testing {
namespace {

constexpr Activation kActivations[] = {Activation::kSilu, Activation::kGeluErf,
                                       Activation::kGeluTanh, Activation::kRelu,
                                       Activation::kReluSquared};

double Exact(Activation activation, double x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGeluErf:
      return x / 2 * std::erfc(-x / std::numbers::sqrt2);
    case Activation::kGeluTanh: {
      const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      return x / (1 + std::exp(-2 * inner));
    }
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kReluSquared:
      return std::max(x, 0.0) * std::max(x, 0.0);
  }
  return 0;
}

// Applies an activation to a value with an error. The slope of each is at most 1.13, of the square
// 2x; the f32 evaluation itself is good to a few roundings of x, since 1 + exp and 1 + erf are.
Bounded Activate(Activation activation, Bounded x) {
  const double slope =
      activation == Activation::kReluSquared ? 2 * (std::fabs(x.value) + x.error) : 1.13;
  const double y = Exact(activation, x.value);
  return {y, slope * x.error + 8 * kF32Rounding * std::max(std::fabs(x.value), std::fabs(y))};
}

Bounded Times(Bounded a, Bounded b) {
  const double product = a.value * b.value;
  return {product, a.error * std::fabs(b.value) + b.error * std::fabs(a.value) + a.error * b.error +
                       kF32Rounding * std::fabs(product)};
}

class ActivatedMatMulTest : public ::testing::TestWithParam<BackendCase> {};

struct Shape {
  int64_t rows;
  int64_t columns;
  int64_t f;
};

// Gate and up of one type, or a stacked matrix, with bias.
void ExpectActivated(const BackendCase& backend_case, DType dtype, Shape shape,
                     Activation activation, bool gated) {
  SCOPED_TRACE(std::string(TraitsOf(dtype).name) + (gated ? " gated" : " stacked") +
               ", activation " + std::to_string(static_cast<int>(activation)) + ", " +
               std::to_string(shape.rows) + " rows");
  Harness harness(backend_case);
  Random random(static_cast<uint32_t>(shape.rows + shape.f));
  const Weights gate = RandomWeights(dtype, shape.f, shape.columns, random);
  const Weights up = RandomWeights(dtype, shape.f, shape.columns, random);
  const PackedMatrix* packed =
      gated ? harness.Pack({&gate, &up}, RowLayout::kGateUp) : harness.Pack({&gate});
  if (packed == nullptr) return;
  // Sums of about 1, where the activations bend.
  std::vector<float> bias = random.Normal(gated ? 2 * shape.f : shape.f, 0.3f);
  const FedRows input =
      harness.Feed(random.Normal(shape.rows * shape.columns), shape.columns, {packed});
  RowBuffer* output = harness.NewRows(static_cast<int>(shape.rows), {harness.Identity(shape.f)});
  harness->ActivatedMatMul({.input = input.rows,
                            .weight = packed,
                            .bias = harness.Upload(bias),
                            .activation = activation,
                            .output = output,
                            .rows = static_cast<int>(shape.rows)});
  const std::span<const float> biases(bias);
  const auto f = static_cast<size_t>(shape.f);
  std::vector<Bounded> expected = MatMulOracle(backend_case, input, gate, biases.first(f));
  for (Bounded& y : expected) y = Activate(activation, y);
  if (gated) {
    const std::vector<Bounded> factors = MatMulOracle(backend_case, input, up, biases.subspan(f));
    for (size_t i = 0; i < expected.size(); ++i) expected[i] = Times(expected[i], factors[i]);
  }
  ExpectClose(harness.Read(output, static_cast<int>(shape.rows)), expected);
}

TEST_P(ActivatedMatMulTest, MatchesTheOracle) {
  for (const DType dtype : kRequiredTypes) {
    ExpectActivated(GetParam(), dtype, {1, 64, 32}, Activation::kSilu, true);
    ExpectActivated(GetParam(), dtype, {17, 96, 40}, Activation::kSilu, true);
    ExpectActivated(GetParam(), dtype, {3, 32, 24}, Activation::kGeluTanh, false);
  }
  for (const DType dtype : kOptionalTypes) {
    // With int8 rows the bound of a product of two such long sums would show nothing.
    ExpectActivated(GetParam(), dtype, {2, 256, 24}, Activation::kSilu, !GetParam().is_fast());
  }
  for (const Activation activation : kActivations) {
    ExpectActivated(GetParam(), DType::kF32, {5, 24, 20}, activation, true);
    ExpectActivated(GetParam(), DType::kF32, {18, 24, 20}, activation, false);
  }
}

// With all ones as input and x in one column of the weights, the activation sees x itself.
std::vector<float> ActivationsOf(const BackendCase& backend_case, Activation activation,
                                 const std::vector<float>& x, const std::vector<float>& up) {
  constexpr int64_t kColumns = 8;
  const auto f = static_cast<int64_t>(x.size());
  const auto in_first_column = [&](const std::vector<float>& values) {
    std::vector<float> matrix(static_cast<size_t>(f * kColumns));
    for (size_t i = 0; i < values.size(); ++i) matrix[i * kColumns] = values[i];
    return WeightsOf(f, kColumns, matrix);
  };
  Harness harness(backend_case);
  const Weights gate = in_first_column(x);
  const Weights factors = in_first_column(up);
  const PackedMatrix* packed =
      up.empty() ? harness.Pack({&gate}) : harness.Pack({&gate, &factors}, RowLayout::kGateUp);
  const FedRows ones = harness.Feed(std::vector<float>(kColumns, 1.0f), kColumns, {packed});
  RowBuffer* output = harness.NewRows(1, {harness.Identity(f)});
  harness->ActivatedMatMul({.input = ones.rows,
                            .weight = packed,
                            .activation = activation,
                            .output = output,
                            .rows = 1});
  return harness.Read(output, 1);
}

TEST_P(ActivatedMatMulTest, MatchesTheGoldenActivations) {
  const GoldenValue golden("activations.json");
  const std::vector<float> x = golden["x"].Floats();
  const std::vector<float> up = golden["up"].Floats();
  struct Case {
    const char* key;
    Activation activation;
    bool gated;
  };
  for (const Case& one : {Case{"silu", Activation::kSilu, false},
                          {"gelu_erf", Activation::kGeluErf, false},
                          {"gelu_tanh", Activation::kGeluTanh, false},
                          {"relu", Activation::kRelu, false},
                          {"swiglu", Activation::kSilu, true},
                          {"geglu_tanh", Activation::kGeluTanh, true},
                          {"geglu_erf", Activation::kGeluErf, true}}) {
    SCOPED_TRACE(one.key);
    std::vector<Bounded> expected;
    const std::vector<double> values = golden[one.key].Doubles();
    for (size_t i = 0; i < x.size(); ++i) {
      // Fed ones and the f32 forms of x and up are each off by a few roundings.
      const Bounded gate = Activate(one.activation, {x[i], 8 * kF32Rounding * std::fabs(x[i])});
      const Bounded factor = {up[i], 8 * kF32Rounding * std::fabs(up[i])};
      const Bounded bound = one.gated ? Times(gate, factor) : gate;
      expected.push_back({values[i], bound.error});
      EXPECT_NEAR(bound.value, values[i], bound.error);  // The oracle agrees with the file.
    }
    ExpectClose(ActivationsOf(GetParam(), one.activation, x, one.gated ? up : std::vector<float>{}),
                expected);
  }
}

TEST_P(ActivatedMatMulTest, ExtremesStayFinite) {
  const std::vector<float> x = {-1e30f, -1e4f, -100.0f, -0.0f, 0.0f, 100.0f, 1e4f, 1e18f};
  for (const Activation activation : kActivations) {
    const std::vector<float> y = ActivationsOf(GetParam(), activation, x, {});
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_TRUE(std::isfinite(y[i])) << x[i];
      // An exponential that a backend clamps below the largest f32 leaves this much.
      if (x[i] < -50) {
        EXPECT_NEAR(y[i], 0.0f, 0x1p-120f * -x[i]);
      }
      if (x[i] > 50 && activation != Activation::kReluSquared) {
        EXPECT_NEAR(y[i], x[i], 8 * kF32Rounding * x[i]);
      }
    }
  }
}

TEST_P(ActivatedMatMulTest, OutputFeedsConsumersOfEveryType) {
  for (const DType dtype : kRequiredTypes) {
    for (const int rows : {1, 17}) {
      SCOPED_TRACE(std::string(TraitsOf(dtype).name) + ", " + std::to_string(rows) + " rows");
      Harness harness(GetParam());
      Random random(33);
      const Weights gate = RandomWeights(dtype, 64, 32, random);
      const Weights up = RandomWeights(dtype, 64, 32, random);
      const Weights down = RandomWeights(dtype, 19, 64, random);
      const PackedMatrix* first = harness.Pack({&gate, &up}, RowLayout::kGateUp);
      const PackedMatrix* second = harness.Pack({&down});
      const FedRows input = harness.Feed(random.Normal(rows * 32), 32, {first});
      RowBuffer* middle = harness.NewRows(rows, {harness.Identity(64), second});
      harness->ActivatedMatMul(
          {.input = input.rows, .weight = first, .output = middle, .rows = rows});
      const DeviceSpan<float> output = harness.Zeros(int64_t{rows} * 19);
      harness->MatMul({.input = middle, .weight = second, .output = output, .rows = rows});
      ExpectClose(harness.Download(output),
                  MatMulOracle(GetParam(), harness.Reread(middle, rows), down, {}));
    }
  }
}

std::vector<float> Activated(const BackendCase& backend_case, int threads, DType dtype, int first,
                             int rows) {
  Harness harness(backend_case, threads);
  Random random(31);
  const Weights gate = RandomWeights(dtype, 40, 96, random);
  const Weights up = RandomWeights(dtype, 40, 96, random);
  const PackedMatrix* packed = harness.Pack({&gate, &up}, RowLayout::kGateUp);
  const std::vector<float> all = random.Normal(20 * 96);
  const FedRows input = harness.Feed(
      std::span(all).subspan(static_cast<size_t>(first) * 96, static_cast<size_t>(rows) * 96), 96,
      {packed});
  RowBuffer* output = harness.NewRows(rows, {harness.Identity(40)});
  harness->ActivatedMatMul({.input = input.rows, .weight = packed, .output = output, .rows = rows});
  return harness.Read(output, rows);
}

TEST_P(ActivatedMatMulTest, NeitherNeighboursNorThreadsChangeABit) {
  for (const DType dtype : {DType::kF32, DType::kQ4_1}) {
    const std::vector<float> all = Activated(GetParam(), 2, dtype, 0, 20);
    EXPECT_EQ(Activated(GetParam(), 1, dtype, 0, 20), all);
    for (const int row : {0, 7, 19}) {
      const auto begin = all.begin() + row * 40;
      EXPECT_EQ(Activated(GetParam(), 2, dtype, row, 1), std::vector<float>(begin, begin + 40));
    }
  }
}

TEST(ActivatedMatMulInstructionSetTest, AllComputeTheSameBits) {
  for (const Numerics numerics : {Numerics::kExact, Numerics::kFast}) {
    const std::vector<BackendCase> cases = CpuCases(numerics);
    for (const BackendCase& other : cases) {
      EXPECT_EQ(Activated(other, 2, DType::kQ4_1, 0, 20),
                Activated(cases.at(0), 2, DType::kQ4_1, 0, 20))
          << other.Name();
      for (const Activation activation : kActivations) {
        Random random(32);
        const std::vector<float> x = random.Normal(64, 4.0f);
        EXPECT_EQ(ActivationsOf(other, activation, x, {}),
                  ActivationsOf(cases.at(0), activation, x, {}))
            << other.Name();
      }
    }
  }
}

VITRINE_INSTANTIATE_BACKENDS(ActivatedMatMulTest);

}  // namespace
}  // namespace vitrine::testing
