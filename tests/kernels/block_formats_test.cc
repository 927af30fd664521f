#include "kernels/block_formats.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/dtype.h"
#include "tests/kernels/golden.h"

namespace vitrine {
namespace {

using testing::GoldenValue;

DType DTypeNamed(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(DType::kIQ4_XS); ++i) {
    const auto dtype = static_cast<DType>(i);
    if (TraitsOf(dtype).name == name) return dtype;
  }
  throw std::runtime_error("no dtype " + name);
}

std::vector<std::byte> BytesOf(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

TEST(BlockFormatsTest, DecodesTheGoldenBlocksBitForBit) {
  const GoldenValue cases = GoldenValue("gguf_blocks.json")["cases"];
  ASSERT_EQ(cases.size(), 14u);  // Every type but F32.
  for (size_t i = 0; i < cases.size(); ++i) {
    const DType dtype = DTypeNamed(cases[i]["type"].Text());
    SCOPED_TRACE(cases[i]["type"].Text());
    const std::vector<std::byte> raw = BytesOf(cases[i]["raw_b64"].Base64());
    const std::vector<float> expected = cases[i]["values"].Floats();
    ASSERT_EQ(raw.size(), RowBytes(dtype, static_cast<int64_t>(expected.size())));
    std::vector<float> values(expected.size());
    DequantizeRow(dtype, raw.data(), static_cast<int64_t>(values.size()), values.data());
    for (size_t c = 0; c < values.size(); ++c) {
      if (std::isnan(expected[c])) {
        EXPECT_TRUE(std::isnan(values[c])) << c;
      } else {
        EXPECT_EQ(std::bit_cast<uint32_t>(values[c]), std::bit_cast<uint32_t>(expected[c])) << c;
      }
    }
  }
}

TEST(BlockFormatsTest, EncodesTheGoldenRowsBitForBit) {
  const GoldenValue cases = GoldenValue("gguf_blocks.json")["quantise"];
  int compared = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    const DType dtype = DTypeNamed(cases[i]["type"].Text());
    if (!CanQuantize(dtype)) continue;
    SCOPED_TRACE(cases[i]["type"].Text());
    const std::vector<float> values = cases[i]["values"].Floats();
    std::vector<std::byte> row(RowBytes(dtype, static_cast<int64_t>(values.size())));
    QuantizeRow(dtype, values.data(), static_cast<int64_t>(values.size()), row.data());
    EXPECT_EQ(row, BytesOf(cases[i]["raw_b64"].Base64()));
    ++compared;
  }
  EXPECT_EQ(compared, 3);
}

TEST(BlockFormatsTest, DecodedBlocksAreWithinHalfAStepOfWhatWasEncoded) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(96);
  for (float& value : values) value = normal(random);
  for (int c = 32; c < 64; ++c) values[static_cast<size_t>(c)] = 0.0f;  // A block without a scale.
  // Steps between neighbouring codes, in units of the largest magnitude of these values; Q4_0 is
  // one-sided, so that its outermost code can be a whole step away.
  const float largest = 4.0f;
  for (const auto& [dtype, step] : {std::pair{DType::kQ8_0, largest / 127},
                                    {DType::kQ4_0, 2 * largest / 8},
                                    {DType::kQ4_1, 2 * largest / 15}}) {
    std::vector<std::byte> row(RowBytes(dtype, 96));
    QuantizeRow(dtype, values.data(), 96, row.data());
    std::vector<float> decoded(96);
    DequantizeRow(dtype, row.data(), 96, decoded.data());
    for (size_t c = 0; c < 96; ++c) {
      EXPECT_NEAR(decoded[c], values[c], step * (0.5f + 0x1p-10f)) << TraitsOf(dtype).name;
      if (c / 32 == 1) {
        EXPECT_EQ(decoded[c], 0.0f);
      }
    }
  }
}

TEST(DTypeTest, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = FloatFromF16(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(FloatFromF16(F16FromFloat(value)))) << bits;
    } else {
      ASSERT_EQ(F16FromFloat(value), half) << bits;
    }
    const float wide = FloatFromBf16(half);
    if (!std::isnan(wide)) {
      ASSERT_EQ(Bf16FromFloat(wide), half) << bits;
    }
  }
}

TEST(DTypeTest, HalvesRoundToNearestTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {  // Every finite half but the largest.
    const float low = FloatFromF16(static_cast<uint16_t>(bits));
    const float high = FloatFromF16(static_cast<uint16_t>(bits + 1));
    const float middle = (low + high) / 2;  // Exact.
    const auto even = static_cast<uint16_t>(bits + (bits & 1u));
    ASSERT_EQ(F16FromFloat(middle), even) << bits;
    ASSERT_EQ(F16FromFloat(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(F16FromFloat(std::nextafter(middle, 1e9f)), bits + 1);
    ASSERT_EQ(F16FromFloat(-middle), even | 0x8000u) << bits;
  }
  EXPECT_EQ(F16FromFloat(65519.996f), 0x7bff);
  EXPECT_EQ(F16FromFloat(65520.0f), 0x7c00);
  EXPECT_EQ(F16FromFloat(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_TRUE(std::isnan(FloatFromF16(F16FromFloat(std::nanf("")))));
  EXPECT_TRUE(std::isnan(FloatFromBf16(Bf16FromFloat(std::nanf("")))));
  EXPECT_EQ(Bf16FromFloat(FloatFromBf16(0x3f80) + 0x1p-8f), 0x3f80);    // A tie, down to even.
  EXPECT_EQ(Bf16FromFloat(FloatFromBf16(0x3f81) + 0x1p-8f), 0x3f82);    // A tie, up to even.
  EXPECT_EQ(Bf16FromFloat(std::numeric_limits<float>::max()), 0x7f80);  // Infinity.
}

}  // namespace
}  // namespace vitrine
