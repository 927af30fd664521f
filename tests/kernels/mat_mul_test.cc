#include "kernels/mat_mul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/kernels/backends.h"

namespace vitrine::testing {
namespace {

class MatMulTest : public ::testing::TestWithParam<BackendCase> {
 protected:
  void ExpectProduct(DType dtype, int64_t rows, int64_t columns, int64_t outputs);
};

void MatMulTest::ExpectProduct(DType dtype, int64_t rows, int64_t columns, int64_t outputs) {
  SCOPED_TRACE(std::string(TraitsOf(dtype).name) + ", " + std::to_string(rows) + " rows, " +
               std::to_string(columns) + " columns, " + std::to_string(outputs) + " outputs");
  Harness harness(GetParam());
  Random random(static_cast<uint32_t>(rows + columns + outputs));
  const Weights weights = RandomWeights(dtype, outputs, columns, random);
  const PackedMatrix* packed = harness.Pack({&weights});
  if (packed == nullptr) return;
  EXPECT_EQ(packed->rows(), outputs);
  EXPECT_EQ(packed->columns(), columns);
  const FedRows input = harness.Feed(random.Normal(rows * columns), columns, {packed});
  const DeviceSpan<float> plain = harness.Zeros(rows * outputs);
  harness->MatMul(
      {.input = input.rows, .weight = packed, .output = plain, .rows = static_cast<int>(rows)});
  ExpectClose(harness.Download(plain), MatMulOracle(GetParam(), input, weights, {}));

  const std::vector<float> bias = random.Normal(outputs);
  const std::vector<float> residual = random.Normal(rows * outputs);
  const DeviceSpan<float> sum = harness.Upload(residual);
  harness->MatMul({.input = input.rows,
                   .weight = packed,
                   .bias = harness.Upload(bias),
                   .add_to_output = true,
                   .output = sum,
                   .rows = static_cast<int>(rows)});
  std::vector<Bounded> expected = MatMulOracle(GetParam(), input, weights, bias);
  for (size_t i = 0; i < expected.size(); ++i) {
    expected[i].value += residual[i];
    expected[i].error += kF32Rounding * std::fabs(expected[i].value);
  }
  ExpectClose(harness.Download(sum), expected);
}

TEST_P(MatMulTest, MatchesTheOracleForEveryType) {
  for (const DType dtype : kRequiredTypes) {
    ExpectProduct(dtype, 1, 32, 16);
    ExpectProduct(dtype, 2, 576, 48);
    ExpectProduct(dtype, 17, 96, 21);  // One more row than a tile, outputs that fill no panel.
    ExpectProduct(dtype, 33, 64, 1);
    // Sums that a kernel cuts into as many parts as it ever does, all full or not.
    ExpectProduct(dtype, 1, 1024, 16);
    ExpectProduct(dtype, 17, 1824, 16);
  }
  for (const DType dtype : kOptionalTypes) {
    ExpectProduct(dtype, 1, 256, 16);
    ExpectProduct(dtype, 17, 512, 21);
  }
}

TEST_P(MatMulTest, FloatTypesTakeAnyNumberOfColumns) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const int64_t columns : {1, 2, 8, 31, 33, 72}) {
      ExpectProduct(dtype, 1, columns, 17);
      ExpectProduct(dtype, 18, columns, 5);
    }
  }
}

TEST_P(MatMulTest, ScalesCapsAndAddsItsOutput) {
  for (const DType dtype : {DType::kF32, DType::kQ4_1}) {
    for (const float softcap : {0.0f, 7.5f}) {
      Harness harness(GetParam());
      Random random(24);
      const Weights weights = RandomWeights(dtype, 21, 64, random);
      const PackedMatrix* packed = harness.Pack({&weights});
      const FedRows input = harness.Feed(random.Normal(3 * 64), 64, {packed});
      const std::vector<float> bias = random.Normal(21);
      std::vector<float> residual(3 * 21);
      if (softcap == 0.0f) residual = random.Normal(3 * 21);
      const DeviceSpan<float> output = harness.Upload(residual);
      const float scale = 0.6f;
      harness->MatMul({.input = input.rows,
                       .weight = packed,
                       .bias = harness.Upload(bias),
                       .output_scale = scale,
                       .softcap = softcap,
                       .add_to_output = softcap == 0.0f,
                       .output = output,
                       .rows = 3});
      std::vector<Bounded> expected = MatMulOracle(GetParam(), input, weights, bias);
      for (size_t i = 0; i < expected.size(); ++i) {
        Bounded& y = expected[i];
        y = {scale * y.value, scale * y.error + kF32Rounding * std::fabs(y.value)};
        if (softcap != 0.0f) {
          // Quotient, tanh (of slope 1 at most) and product.
          y = {softcap * std::tanh(y.value / softcap), y.error + 8 * kF32Rounding * softcap};
        }
        y.value += residual[i];
        y.error += kF32Rounding * std::fabs(y.value);
      }
      ExpectClose(harness.Download(output), expected);
    }
  }
}

TEST_P(MatMulTest, PartsOfDifferentTypesStack) {
  Harness harness(GetParam());
  Random random(21);
  const Weights first = RandomWeights(DType::kQ4_1, 19, 64, random);
  const Weights second = RandomWeights(DType::kQ8_0, 7, 64, random);
  const PackedMatrix* both = harness.Pack({&first, &second});
  const FedRows input = harness.Feed(random.Normal(3 * 64), 64, {both});
  const DeviceSpan<float> output = harness.Zeros(3 * 26);
  harness->MatMul({.input = input.rows, .weight = both, .output = output, .rows = 3});
  const std::vector<Bounded> top = MatMulOracle(GetParam(), input, first, {});
  const std::vector<Bounded> bottom = MatMulOracle(GetParam(), input, second, {});
  std::vector<Bounded> expected;
  for (int r = 0; r < 3; ++r) {
    expected.insert(expected.end(), top.begin() + r * 19, top.begin() + (r + 1) * 19);
    expected.insert(expected.end(), bottom.begin() + r * 7, bottom.begin() + (r + 1) * 7);
  }
  ExpectClose(harness.Download(output), expected);
}

TEST_P(MatMulTest, OneRowBufferServesConsumersOfDifferentTypes) {
  Harness harness(GetParam());
  Random random(22);
  const Weights quantised = RandomWeights(DType::kQ4_1, 16, 64, random);
  const Weights plain = RandomWeights(DType::kF32, 16, 64, random);
  const std::vector<const PackedMatrix*> packed = {harness.Pack({&quantised}),
                                                   harness.Pack({&plain})};
  const FedRows input = harness.Feed(random.Normal(5 * 64), 64, packed);
  for (size_t i = 0; i < 2; ++i) {
    const DeviceSpan<float> output = harness.Zeros(5 * 16);
    harness->MatMul({.input = input.rows, .weight = packed[i], .output = output, .rows = 5});
    const Weights& weights = i == 0 ? quantised : plain;
    ExpectClose(harness.Download(output), MatMulOracle(GetParam(), input, weights, {}));
  }
}

// Sums of 16 bits have room for fewer products the larger the weights are.
TEST_P(MatMulTest, LargestWeightsMeetLargestActivations) {
  constexpr int kRows = 7;
  constexpr int64_t kColumns = 256;
  std::vector<float> input(kRows * kColumns);
  for (size_t i = 0; i < input.size(); ++i) {
    const size_t row = i / kColumns;
    const bool is_negative = row % 3 == 1 || (row % 3 == 2 && i % 4 < 2);
    input[i] = is_negative ? -1.0f : 1.0f;
  }
  for (const DType dtype : AllTypes()) {
    if (IsFloat(dtype)) continue;
    for (const int byte : {0x00, 0x7f, 0x80, 0xff}) {
      SCOPED_TRACE(std::string(TraitsOf(dtype).name) + " of " + std::to_string(byte));
      Harness harness(GetParam());
      Random random(25);
      const Weights weights = EvenWeights(dtype, 21, kColumns, static_cast<uint8_t>(byte), random);
      const PackedMatrix* packed = harness.Pack({&weights});
      if (packed == nullptr) continue;
      for (const int rows : {1, kRows}) {
        const FedRows fed = harness.Feed(
            std::span(input).first(static_cast<size_t>(rows * kColumns)), kColumns, {packed});
        const DeviceSpan<float> output = harness.Zeros(int64_t{rows} * 21);
        harness->MatMul({.input = fed.rows, .weight = packed, .output = output, .rows = rows});
        ExpectClose(harness.Download(output), MatMulOracle(GetParam(), fed, weights, {}));
      }
    }
  }
}

// Products of `rows` consecutive rows of one fixed input, starting at `first`.
std::vector<float> Products(const BackendCase& backend_case, int threads, DType dtype, int first,
                            int rows) {
  // Kernels cut such a sum into several parts.
  const int64_t columns = TraitsOf(dtype).block_columns == 256 ? 1280 : 1184;
  constexpr int64_t kOutputs = 45;
  Harness harness(backend_case, threads);
  Random random(23);
  const Weights weights = RandomWeights(dtype, kOutputs, columns, random);
  const PackedMatrix* packed = harness.Pack({&weights});
  const std::vector<float> all = random.Normal(40 * columns);
  const FedRows input = harness.Feed(std::span(all).subspan(static_cast<size_t>(first * columns),
                                                            static_cast<size_t>(rows * columns)),
                                     columns, {packed});
  const DeviceSpan<float> output = harness.Zeros(rows * kOutputs);
  harness->MatMul({.input = input.rows, .weight = packed, .output = output, .rows = rows});
  return harness.Download(output);
}

TEST_P(MatMulTest, NeitherNeighboursNorThreadsChangeABit) {
  for (const DType dtype : kRequiredTypes) {
    SCOPED_TRACE(TraitsOf(dtype).name);
    const std::vector<float> all = Products(GetParam(), 2, dtype, 0, 40);
    EXPECT_EQ(Products(GetParam(), 1, dtype, 0, 40), all);
    for (const auto& [first, rows] : {std::pair{0, 1}, {39, 1}, {15, 2}, {3, 7}, {16, 17}}) {
      const auto begin = all.begin() + first * 45;
      EXPECT_EQ(Products(GetParam(), 2, dtype, first, rows),
                std::vector<float>(begin, begin + rows * 45))
          << rows << " rows from " << first;
    }
  }
}

TEST(MatMulInstructionSetTest, AllComputeTheSameBits) {
  for (const Numerics numerics : {Numerics::kExact, Numerics::kFast}) {
    const std::vector<BackendCase> cases = CpuCases(numerics);
    for (const DType dtype : AllTypes()) {
      const std::vector<float> expected = Products(cases.at(0), 2, dtype, 0, 40);
      for (const BackendCase& other : cases) {
        EXPECT_EQ(Products(other, 2, dtype, 0, 40), expected)
            << other.Name() << " " << TraitsOf(dtype).name;
      }
    }
  }
}

VITRINE_INSTANTIATE_BACKENDS(MatMulTest);

}  // namespace
}  // namespace vitrine::testing
