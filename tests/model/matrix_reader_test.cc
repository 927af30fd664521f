// What a file stores becomes what a backend packs: rows that lie apart, transposed, in another
// type.
#include "model/matrix_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/block_formats.h"
#include "model/fp8.h"

namespace vitrine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

WeightView Whole(const std::vector<float>& values, int64_t rows) {
  return {.name = "w",
          .dtype = DType::kF32,
          .data = std::as_bytes(std::span(values)).data(),
          .tensor_rows = rows,
          .rows = rows,
          .columns = static_cast<int64_t>(values.size()) / rows,
          .run_rows = rows,
          .run_stride = rows};
}

std::vector<float> Values(const MatrixPart& part) {
  std::vector<float> values(static_cast<size_t>(part.rows * part.columns));
  for (int64_t row = 0; row < part.rows; ++row) {
    DequantizeRow(part.dtype,
                  part.data + static_cast<size_t>(row) * RowBytes(part.dtype, part.columns),
                  part.columns, values.data() + row * part.columns);
  }
  return values;
}

std::vector<float> Count(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

TEST(MatrixReaderTest, RowsAsTheyAreAreNotCopied) {
  const std::vector<float> values = Count(6);
  MatrixReader reader(std::nullopt);
  const auto part = reader.Read(Whole(values, 3));
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->data, std::as_bytes(std::span(values)).data());
}

TEST(MatrixReaderTest, GathersRunsOfRows) {
  const std::vector<float> values = Count(16);  // 8 rows in 2 groups of 4.
  WeightView view = Whole(values, 8);
  view.first_row = 1;
  view.rows = 4;
  view.run_rows = 2;
  view.run_stride = 4;
  MatrixReader reader(std::nullopt);
  EXPECT_THAT(Values(*reader.Read(view)), ElementsAre(2, 3, 4, 5, 10, 11, 12, 13));
  std::vector<float> appended = {-1};
  AppendValues(view, appended);
  EXPECT_THAT(appended, ElementsAre(-1, 2, 3, 4, 5, 10, 11, 12, 13));
}

TEST(MatrixReaderTest, TurnsWhatIsTransposed) {
  const std::vector<float> values = Count(6);  // [2 inputs, 3 outputs]
  WeightView view = Whole(values, 3);
  view.is_transposed = true;
  MatrixReader reader(std::nullopt);
  EXPECT_THAT(Values(*reader.Read(view)), ElementsAre(0, 3, 1, 4, 2, 5));
  view.first_row = 1;
  view.rows = view.run_rows = view.run_stride = 2;
  EXPECT_THAT(Values(*reader.Read(view)), ElementsAre(1, 4, 2, 5));
}

TEST(MatrixReaderTest, ChangesTheType) {
  const std::vector<float> values = Count(64);
  MatrixReader reader(DType::kQ8_0);
  const auto part = reader.Read(Whole(values, 2));
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->dtype, DType::kQ8_0);
  std::vector<std::byte> expected(2 * RowBytes(DType::kQ8_0, 32));
  for (size_t row = 0; row < 2; ++row) {
    QuantizeRow(DType::kQ8_0, values.data() + row * 32, 32,
                expected.data() + row * RowBytes(DType::kQ8_0, 32));
  }
  EXPECT_EQ(std::vector<std::byte>(part->data, part->data + expected.size()), expected);
}

// The corners of the specification's table of E4M3 values.
TEST(Fp8Test, ValuesAreThoseOfTheSpecification) {
  EXPECT_EQ(FloatFromE4M3(0x00), 0.0f);
  EXPECT_TRUE(std::signbit(FloatFromE4M3(0x80)));
  EXPECT_EQ(FloatFromE4M3(0x01), 0x1p-9f);
  EXPECT_EQ(FloatFromE4M3(0x07), 0x1.cp-7f);
  EXPECT_EQ(FloatFromE4M3(0x08), 0x1p-6f);
  EXPECT_EQ(FloatFromE4M3(0x38), 1.0f);
  EXPECT_EQ(FloatFromE4M3(0xfe), -448.0f);
  EXPECT_TRUE(std::isnan(FloatFromE4M3(0x7f)));
  EXPECT_TRUE(std::isnan(FloatFromE4M3(0xff)));
}

TEST(Fp8Test, ShortMantissasAreHalvesCutShort) {
  EXPECT_EQ(FloatFromE5M2(0x00), 0.0f);
  EXPECT_TRUE(std::signbit(FloatFromE5M2(0x80)));
  EXPECT_EQ(FloatFromE5M2(0x01), 0x1p-16f);
  EXPECT_EQ(FloatFromE5M2(0x03), 0x1.8p-15f);
  EXPECT_EQ(FloatFromE5M2(0x04), 0x1p-14f);
  EXPECT_EQ(FloatFromE5M2(0x3c), 1.0f);
  EXPECT_EQ(FloatFromE5M2(0xfb), -57344.0f);
  EXPECT_EQ(FloatFromE5M2(0x7c), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(FloatFromE5M2(0x7d)));
  EXPECT_TRUE(std::isnan(FloatFromE5M2(0xff)));
}

TEST(Fp8Test, ScalesMayBePowersOfTwo) {
  const std::vector<uint8_t> ones(4, 0x3c);
  const std::vector<uint8_t> powers = {127, 130};
  const WeightView view = {.name = "w",
                           .data = std::as_bytes(std::span(ones)).data(),
                           .tensor_rows = 2,
                           .rows = 2,
                           .columns = 2,
                           .run_rows = 2,
                           .run_stride = 2,
                           .scales = {.data = std::as_bytes(std::span(powers)).data(),
                                      .are_powers = true,
                                      .is_e5m2 = true,
                                      .columns = 1,
                                      .block_rows = 1,
                                      .block_columns = 2}};
  MatrixReader reader(std::nullopt);
  EXPECT_THAT(Values(*reader.Read(view)), ElementsAre(1, 1, 8, 8));
}

TEST(Fp8Test, EveryBlockHasItsScale) {
  // 3 rows of 5 ones in blocks of 2 x 3, of which the last ones are smaller.
  const std::vector<uint8_t> ones(15, 0x38);
  const std::vector<float> scales = {1, 2, 3, 4};
  WeightView view = {.name = "w",
                     .data = std::as_bytes(std::span(ones)).data(),
                     .tensor_rows = 3,
                     .rows = 3,
                     .columns = 5,
                     .run_rows = 3,
                     .run_stride = 3,
                     .scales = {.data = std::as_bytes(std::span(scales)).data(),
                                .columns = 2,
                                .block_rows = 2,
                                .block_columns = 3}};
  MatrixReader reader(std::nullopt);
  EXPECT_THAT(Values(*reader.Read(view)), ElementsAre(1, 1, 1, 2, 2, 1, 1, 1, 2, 2, 3, 3, 3, 4, 4));
  view.first_row = 1;
  view.rows = view.run_rows = view.run_stride = 2;
  EXPECT_THAT(Values(*reader.Read(view)), ElementsAre(1, 1, 1, 2, 2, 3, 3, 3, 4, 4));
}

TEST(MatrixReaderTest, ScalesWhatItReads) {
  const std::vector<float> values = Count(4);
  WeightView view = Whole(values, 2);
  view.scale = 0.5f;
  MatrixReader reader(std::nullopt);
  EXPECT_THAT(Values(*reader.Read(view)), ElementsAre(0, 0.5, 1, 1.5));
  std::vector<float> appended;
  AppendValues(view, appended);
  EXPECT_THAT(appended, ElementsAre(0, 0.5, 1, 1.5));
  EXPECT_EQ((*MatrixReader(DType::kBF16).Read(view)).dtype, DType::kBF16);
}

TEST(MatrixReaderTest, WhatCannotChangeItsTypeIsRefusedByName) {
  MatrixReader reader(DType::kQ4_0);
  const std::vector<float> odd = Count(66);
  EXPECT_THAT(std::string(reader.Read(Whole(odd, 2)).status().message()),
              HasSubstr("tensor \"w\" cannot become Q4_0: rows of 33 are not whole blocks of 32"));
  std::vector<float> bad = Count(32);
  bad[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(std::string(reader.Read(Whole(bad, 1)).status().message()), HasSubstr("not finite"));
}

}  // namespace
}  // namespace vitrine
