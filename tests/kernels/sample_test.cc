#include "kernels/sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/sampling_math.h"
#include "tests/kernels/backends.h"

namespace vitrine::testing {
namespace {

class SampleTest : public ::testing::TestWithParam<BackendCase> {};

std::vector<SampleRow> RandomRows(int count, Random& random) {
  std::vector<SampleRow> rows;
  for (int r = 0; r < count; ++r) {
    rows.push_back(
        {.temperature = r % 4 == 0 ? 0.0f : 0.3f + 0.1f * static_cast<float>(r % 20),
         .top_k = r % 3 == 0 ? 0 : 1 + random.Below(100),
         .typical_p = r % 7 < 4 ? 1.0f : 0.01f * static_cast<float>(1 + random.Below(99)),
         .top_p = r % 2 == 0 ? 1.0f : 0.01f * static_cast<float>(1 + random.Below(99)),
         .min_p = r % 5 == 0 ? 0.05f : 0.0f,
         .seed = static_cast<uint64_t>(random.Below(1 << 30)),
         .choice = static_cast<uint32_t>(r % 3),
         .position = r});
  }
  return rows;
}

std::vector<int32_t> Drawn(const BackendCase& backend_case, std::span<const float> logits,
                           std::span<const SampleRow> rows, int vocabulary, int threads = 2) {
  Harness harness(backend_case, threads);
  const DeviceSpan<int32_t> ids = harness.Integers(static_cast<int64_t>(rows.size()));
  harness->Sample(
      {.logits = harness.Upload(logits), .rows = rows, .vocabulary = vocabulary, .token_ids = ids});
  return harness.Download(ids);
}

TEST_P(SampleTest, EveryBackendDrawsTheDefinedToken) {
  for (const int vocabulary : {1, 2, 17, 1000, 49152, 151936}) {
    SCOPED_TRACE(vocabulary);
    Random random(static_cast<uint32_t>(vocabulary));
    const int count = vocabulary > 40000 ? 9 : 33;
    const std::vector<SampleRow> rows = RandomRows(count, random);
    std::vector<float> logits = random.Normal(int64_t{count} * vocabulary, 3.0f);
    for (size_t i = 0; i < logits.size(); i += 3) logits[i] = std::round(logits[i]);  // Ties.
    std::vector<int32_t> expected;
    for (size_t r = 0; r < rows.size(); ++r) {
      const auto size = static_cast<size_t>(vocabulary);
      expected.push_back(SampleToken(std::span(logits).subspan(r * size, size), rows[r]));
    }
    EXPECT_EQ(Drawn(GetParam(), logits, rows, vocabulary, 1), expected);
    EXPECT_EQ(Drawn(GetParam(), logits, rows, vocabulary, 2), expected);
    // Alone in its batch a row draws the same.
    const auto last = static_cast<size_t>(count - 1);
    EXPECT_EQ(Drawn(GetParam(), std::span(logits).last(static_cast<size_t>(vocabulary)),
                    std::span(rows).subspan(last), vocabulary),
              std::vector<int32_t>{expected.back()});
  }
}

// A backend may look at a part of the row only: filters that keep one token, some, or nearly all of
// rows that are flat, steep, full of ties, or near zero, of sizes around those of its groups.
TEST_P(SampleTest, FiltersOfEveryReachOnRowsOfEveryShape) {
  std::vector<SampleRow> filters = {{}, {.typical_p = 0.5f}};
  for (const int32_t top_k : {1, 7, 8, 9, 40, 391, 392, 400}) {
    filters.push_back({.top_k = top_k});
    filters.push_back({.top_k = top_k, .top_p = 0.9f, .min_p = 0.01f});
  }
  for (const float p : {1e-6f, 0.3f, 0.95f, 0.999f}) {
    filters.push_back({.top_p = p});
    filters.push_back({.top_p = p, .min_p = 0.2f});
    filters.push_back({.min_p = p});
  }
  for (const int vocabulary : {1023, 1025, 50257}) {
    const auto size = static_cast<size_t>(vocabulary);
    Random random(static_cast<uint32_t>(vocabulary));
    std::vector<SampleRow> rows;
    std::vector<float> logits;
    for (const float deviation : {1e-41f, 0.01f, 3.0f, 100.0f}) {
      for (const bool has_ties : {false, true}) {
        const bool is_last = deviation == 100.0f && has_ties;
        // On the large vocabulary every shape takes some of the filters, the last one all.
        for (size_t f = rows.size() % 5; f < filters.size();
             f += vocabulary > 40000 && !is_last ? 5 : 1) {
          std::vector<float> row = random.Normal(vocabulary, deviation);
          if (has_ties) {
            for (float& logit : row) logit = std::round(logit * 4) / 4;
          }
          logits.insert(logits.end(), row.begin(), row.end());
          rows.push_back(filters[f]);
          rows.back().temperature = rows.size() % 3 == 0 ? 2.0f : 0.7f;
          rows.back().seed = rows.size();
        }
      }
    }
    std::vector<int32_t> expected;
    for (size_t r = 0; r < rows.size(); ++r) {
      expected.push_back(SampleToken(std::span(logits).subspan(r * size, size), rows[r]));
    }
    EXPECT_EQ(Drawn(GetParam(), logits, rows, vocabulary), expected);
  }
}

// Rows that fill their last part, leave it one token, or need larger parts than the smallest.
TEST_P(SampleTest, PartsOfEverySizeMakeOneRow) {
  for (const int vocabulary : {16384, 16385, 32768, 1048577}) {
    SCOPED_TRACE(vocabulary);
    const auto size = static_cast<size_t>(vocabulary);
    Random random(static_cast<uint32_t>(vocabulary));
    std::vector<SampleRow> rows = {
        {}, {.temperature = 2.0f, .typical_p = 0.9f, .min_p = 0.01f, .seed = 1}};
    if (vocabulary < 1000000) {
      rows.push_back({.temperature = 1.0f, .top_k = 50, .seed = 2});
      rows.push_back({.temperature = 2.0f, .top_p = 0.8f, .seed = 3});
      rows.push_back({.temperature = 1.0f, .seed = 4});
    }
    std::vector<float> logits = random.Normal(static_cast<int64_t>(size * rows.size()), 2.0f);
    logits[size - 1] = 100.0f;
    std::vector<int32_t> expected;
    for (size_t r = 0; r < rows.size(); ++r) {
      expected.push_back(SampleToken(std::span(logits).subspan(r * size, size), rows[r]));
    }
    EXPECT_EQ(expected[0], vocabulary - 1);
    EXPECT_EQ(Drawn(GetParam(), logits, rows, vocabulary), expected);
  }
}

TEST_P(SampleTest, TiesGoToTheLowestIdWhereverTheyAre) {
  for (const auto& [vocabulary, first] : std::vector<std::pair<int, int>>{{1000, 0},
                                                                          {1000, 1},
                                                                          {1000, 15},
                                                                          {1000, 16},
                                                                          {1000, 511},
                                                                          {1000, 998},
                                                                          {40000, 16383},
                                                                          {40000, 16384},
                                                                          {40000, 39998}}) {
    // The two zeros are equal, too.
    for (const float last : {2.0f, 0.0f}) {
      std::vector<float> logits(static_cast<size_t>(vocabulary), -1.0f);
      logits[static_cast<size_t>(first)] = last == 0.0f ? -0.0f : last;
      logits.back() = last;
      EXPECT_EQ(Drawn(GetParam(), logits, std::vector<SampleRow>(1), vocabulary),
                std::vector<int32_t>{first});
    }
  }
}

// A backend may cut a row into parts: the border of top-p lies in the middle of one, at its ends,
// or in the last one, and all tokens weigh the same.
TEST_P(SampleTest, OfTiedTokensTopPKeepsTheFirst) {
  constexpr int kVocabulary = 40000;
  const std::vector<float> row(kVocabulary, 1.5f);
  std::vector<float> logits;
  std::vector<SampleRow> rows;
  for (const int kept : {1, 100, 16384, 16385, 32768, 39999}) {
    const float top_p = (static_cast<float>(kept) - 0.5f) / kVocabulary;
    for (uint64_t seed = 0; seed < 3; ++seed) {
      rows.push_back({.temperature = 1.0f, .top_p = top_p, .seed = seed});
      logits.insert(logits.end(), row.begin(), row.end());
      EXPECT_LT(SampleToken(row, rows.back()), kept);
    }
  }
  std::vector<int32_t> expected;
  for (const SampleRow& how : rows) expected.push_back(SampleToken(row, how));
  EXPECT_EQ(Drawn(GetParam(), logits, rows, kVocabulary), expected);
}

TEST_P(SampleTest, UnusableRowsGetNoTokenAndDisturbNoOther) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const int vocabulary : {100, 40000}) {
    const auto size = static_cast<size_t>(vocabulary);
    for (const float temperature : {0.0f, 1.0f}) {
      Random random(5);
      std::vector<float> logits = random.Normal(int64_t{5} * vocabulary);
      const std::vector<SampleRow> rows(5, {.temperature = temperature, .top_p = 0.9f, .seed = 3});
      const std::vector<int32_t> usable = Drawn(GetParam(), logits, rows, vocabulary);
      logits[1 * size - 1] = std::nanf("");
      logits[1 * size + size / 2] = kInfinity;
      for (size_t i = 0; i < size; ++i) logits[2 * size + i] = -kInfinity;
      logits[3 * size] = -std::nanf("");
      EXPECT_EQ(Drawn(GetParam(), logits, rows, vocabulary),
                (std::vector<int32_t>{kNoToken, kNoToken, kNoToken, kNoToken, usable[4]}));
    }
  }
}

VITRINE_INSTANTIATE_BACKENDS(SampleTest);

}  // namespace
}  // namespace vitrine::testing
