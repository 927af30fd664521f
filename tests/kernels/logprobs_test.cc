#include "kernels/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/sampling_math.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/golden.h"

namespace vitrine::testing {
namespace {

// Stands for the adjusted rows: those of the logits from behind.
std::vector<float> AdjustedOf(std::span<const float> logits) {
  return {logits.rbegin(), logits.rend()};
}

class LogprobsTest : public ::testing::TestWithParam<BackendCase> {
 protected:
  // Results of `rows`, with `sampling` for all rows of `logits`; draws where a row has no token.
  std::vector<LogprobsResult> Run(std::span<const float> logits,
                                  std::span<const SampleRow> sampling,
                                  std::span<const LogprobsRow> rows, int vocabulary) {
    return Run(logits, sampling, rows, vocabulary, GetParam());
  }

  std::vector<LogprobsResult> Run(std::span<const float> logits,
                                  std::span<const SampleRow> sampling,
                                  std::span<const LogprobsRow> rows, int vocabulary,
                                  const BackendCase& backend_case) {
    Harness harness(backend_case);
    const DeviceSpan<const float> device_logits = harness.Upload(logits);
    const DeviceSpan<const float> adjusted = harness.Upload(AdjustedOf(logits));
    const DeviceSpan<int32_t> ids = harness.Integers(static_cast<int64_t>(sampling.size()));
    harness->Sample({.logits = device_logits,
                     .adjusted = adjusted,
                     .rows = sampling,
                     .vocabulary = vocabulary,
                     .token_ids = ids});
    drawn_ = harness.Download(ids);
    const Buffer output = *harness->Allocate(rows.size() * sizeof(LogprobsResult));
    harness->Logprobs({.logits = device_logits,
                       .adjusted = adjusted,
                       .sampling = sampling,
                       .token_ids = ids,
                       .rows = rows,
                       .vocabulary = vocabulary,
                       .output = output.As<LogprobsResult>()});
    std::vector<LogprobsResult> results(rows.size());
    const DeviceSpan<const LogprobsResult> device_results = output.As<LogprobsResult>();
    harness->CopyToHost(device_results, std::span(results));
    return results;
  }

  std::vector<int32_t> drawn_;
};

// log-softmax over the tokens that `row` leaves, from the definition.
std::vector<double> ExactLogprobs(std::span<const float> logits, const SampleRow* row) {
  const float top = *std::ranges::max_element(logits);
  const double temperature = row == nullptr ? 1.0 : row->temperature;
  std::vector<uint64_t> weights(logits.size(), 1);
  if (row != nullptr) {
    const SampleFilter filter = MakeSampleFilter(logits, top, *row);
    for (size_t id = 0; id < logits.size(); ++id) {
      weights[id] = filter.Weight(logits[id], static_cast<int32_t>(id));
    }
  }
  double total = 0;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (weights[id] > 0) total += std::exp((double{logits[id]} - top) / temperature);
  }
  std::vector<double> logprobs;
  for (size_t id = 0; id < logits.size(); ++id) {
    const double x = (double{logits[id]} - top) / temperature;
    logprobs.push_back(weights[id] > 0 ? x - std::log(total)
                                       : -std::numeric_limits<double>::infinity());
  }
  return logprobs;
}

void ExpectResult(const LogprobsResult& result, std::span<const float> logits,
                  const std::vector<double>& exact, int32_t token, int32_t top_count) {
  // A weight has relative error 4 * 2^-24 and more by its exponent, at most 28 * 2^-24, and tokens
  // below 2^-40 of the best are left out of the sum.
  const double tolerance = 32 * kF32Rounding + static_cast<double>(logits.size()) * 0x1p-40;
  EXPECT_NEAR(result.Logprob(result.logit), exact[static_cast<size_t>(token)], tolerance);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int32_t id) { return std::isinf(exact[static_cast<size_t>(id)]); });
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](int32_t id) { return logits[static_cast<size_t>(id)]; });
  EXPECT_EQ(result.rank, std::ranges::find(order, token) - order.begin() + 1);
  ASSERT_EQ(result.top_count, std::min<int32_t>(top_count, static_cast<int32_t>(order.size())));
  for (int32_t i = 0; i < result.top_count; ++i) {
    const int32_t id = order[static_cast<size_t>(i)];
    EXPECT_EQ(result.top_ids[i], id);
    EXPECT_NEAR(result.Logprob(result.top_logits[i]), exact[static_cast<size_t>(id)], tolerance);
  }
}

TEST_P(LogprobsTest, AreThoseOfTheDistribution) {
  for (const int vocabulary : {1, 7, 1000, 49152}) {
    SCOPED_TRACE(vocabulary);
    Random random(static_cast<uint32_t>(vocabulary));
    constexpr int kRows = 6;
    const auto size = static_cast<size_t>(vocabulary);
    std::vector<float> logits = random.Normal(int64_t{kRows} * vocabulary, 3.0f);
    for (size_t i = 0; i < logits.size(); i += 2) logits[i] = std::round(logits[i]);  // Ties.
    const std::vector<float> adjusted = AdjustedOf(logits);
    std::vector<SampleRow> sampling;
    std::vector<LogprobsRow> rows;
    for (int r = 0; r < kRows; ++r) {
      sampling.push_back({.temperature = 0.5f + 0.4f * static_cast<float>(r),
                          .top_k = r % 3 == 0 ? 0 : 40,
                          .typical_p = r % 2 == 0 ? 1.0f : 0.9f,
                          .top_p = 0.95f,
                          .min_p = 0.01f,
                          .seed = 5,
                          .position = r,
                          .adjusted_row = r % 2 == 0 ? -1 : (r + 1) % kRows});
      const int32_t top_count = r == 1 ? 0 : 4 * r;
      rows.push_back({.row = r, .top_count = top_count});
      rows.push_back({.row = r, .top_count = top_count, .is_processed = true});
      rows.push_back({.row = r, .token_id = random.Below(vocabulary), .top_count = top_count});
    }
    const std::vector<LogprobsResult> results = Run(logits, sampling, rows, vocabulary);
    for (size_t i = 0; i < rows.size(); ++i) {
      SCOPED_TRACE(i);
      const LogprobsRow& row = rows[i];
      const SampleRow& sample = sampling[static_cast<size_t>(row.row)];
      const bool is_adjusted = row.is_processed && sample.adjusted_row >= 0;
      const auto source = static_cast<size_t>(is_adjusted ? sample.adjusted_row : row.row);
      const auto source_logits =
          std::span(is_adjusted ? adjusted : logits).subspan(source * size, size);
      const int32_t token = row.token_id >= 0 ? row.token_id : drawn_[static_cast<size_t>(row.row)];
      ExpectResult(results[i], source_logits,
                   ExactLogprobs(source_logits, row.is_processed ? &sample : nullptr), token,
                   row.top_count);
    }
  }
}

// The arithmetic is that of integers: what the reference backend gives is what all give.
TEST_P(LogprobsTest, AreTheSameBitsOnEveryBackend) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<SampleRow> sampling = {
      {.temperature = 0.0f},
      {.temperature = 0.8f, .seed = 1},
      {.temperature = 0.8f, .top_k = 40, .seed = 2},
      {.temperature = 0.8f, .top_p = 0.9f, .seed = 3},
      {.temperature = 1.5f, .min_p = 0.02f, .seed = 4},
      {.temperature = 2.0f, .top_k = 500, .typical_p = 0.3f, .seed = 5},
      {.temperature = 1.0f, .seed = 6, .adjusted_row = 2}};
  const auto count = static_cast<int>(sampling.size());
  for (const int vocabulary : {1025, 50257}) {
    SCOPED_TRACE(vocabulary);
    const auto size = static_cast<size_t>(vocabulary);
    Random random(static_cast<uint32_t>(vocabulary));
    std::vector<float> logits = random.Normal(int64_t{count} * vocabulary, 4.0f);
    for (size_t i = 0; i < logits.size(); i += 2) logits[i] = std::round(logits[i]);
    for (size_t i = 0; i < logits.size(); i += 997) logits[i] = i % 2 == 0 ? -kInfinity : 1e-41f;
    std::vector<LogprobsRow> rows;
    for (int r = 0; r < count; ++r) {
      for (const int top_count : {0, 5, kMaxTopLogprobs}) {
        rows.push_back({.row = r, .top_count = top_count});
        rows.push_back({.row = r, .top_count = top_count, .is_processed = true});
        const int place = random.Below(vocabulary);
        for (const int id : {0, place, place / 16 * 16, vocabulary - 1}) {
          rows.push_back({.row = r, .token_id = id, .top_count = top_count});
        }
        // What filters take out: one of the many, and the best, which typical sampling may.
        const auto row = std::span(logits).subspan(size * static_cast<size_t>(r), size);
        const auto best = static_cast<int32_t>(std::ranges::max_element(row) - row.begin());
        for (const int id : {place, best}) {
          rows.push_back({.row = r, .token_id = id, .top_count = top_count, .is_processed = true});
        }
      }
    }
    // Which sorts a vocabulary for every row, and is the same for every backend.
    static std::map<int, std::vector<LogprobsResult>> references;
    std::vector<LogprobsResult>& expected = references[vocabulary];
    if (expected.empty()) {
      expected = Run(logits, sampling, rows, vocabulary, {.backend = "reference"});
    }
    const std::vector<LogprobsResult> results = Run(logits, sampling, rows, vocabulary);
    for (size_t i = 0; i < rows.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(results[i].total_weight, expected[i].total_weight);
      EXPECT_EQ(results[i].top_logit, expected[i].top_logit);
      EXPECT_EQ(results[i].temperature, expected[i].temperature);
      EXPECT_EQ(results[i].logit, expected[i].logit);
      EXPECT_EQ(results[i].rank, expected[i].rank);
      ASSERT_EQ(results[i].top_count, expected[i].top_count);
      for (int t = 0; t < results[i].top_count; ++t) {
        EXPECT_EQ(results[i].top_ids[t], expected[i].top_ids[t]);
        EXPECT_EQ(results[i].top_logits[t], expected[i].top_logits[t]);
      }
    }
  }
}

TEST_P(LogprobsTest, GiveTheGoldenLogSoftmax) {
  const GoldenValue golden = GoldenValue("sampling.json")["logprobs"];
  const std::vector<float> logits = golden["logits"].Floats();
  const std::vector<double> expected = golden["logprobs"].Doubles();
  std::vector<LogprobsRow> rows;
  for (size_t id = 0; id < logits.size(); ++id) {
    rows.push_back({.token_id = static_cast<int32_t>(id)});
  }
  const std::vector<LogprobsResult> results =
      Run(logits, std::vector<SampleRow>(1), rows, static_cast<int>(logits.size()));
  for (size_t id = 0; id < logits.size(); ++id) {
    EXPECT_NEAR(results[id].Logprob(results[id].logit), expected[id],
                std::abs(expected[id]) * 1e-5 + 1e-6);
  }
}

TEST_P(LogprobsTest, GreedyRowsAreCertainOfTheirToken) {
  const std::vector<float> logits = {1.0f, 4.0f, 4.0f, 3.5f};
  const std::vector<LogprobsRow> rows = {{.top_count = 4, .is_processed = true}, {.top_count = 4}};
  const std::vector<LogprobsResult> results = Run(logits, std::vector<SampleRow>(1), rows, 4);
  EXPECT_EQ(results[0].Logprob(results[0].logit), 0.0);
  EXPECT_EQ(results[0].rank, 1);
  ASSERT_EQ(results[0].top_count, 1);
  EXPECT_EQ(results[0].top_ids[0], 1);
  EXPECT_EQ(results[1].top_count, 4);
  EXPECT_EQ(results[1].top_ids[1], 2);
}

TEST_P(LogprobsTest, BansAreNoAlternativesAndBrokenRowsHarmNobody) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {0.0f, -kInfinity, 1.0f, std::nanf(""), 1.0f, 2.0f};
  const std::vector<LogprobsRow> rows = {{.row = 0, .top_count = 3}, {.row = 1, .top_count = 3}};
  const std::vector<LogprobsResult> results = Run(logits, std::vector<SampleRow>(2), rows, 3);
  EXPECT_EQ(results[0].top_count, 2);
  EXPECT_EQ(drawn_, (std::vector<int32_t>{2, kNoToken}));
  EXPECT_EQ(results[1].top_count, 0);
}

VITRINE_INSTANTIATE_BACKENDS(LogprobsTest);

}  // namespace
}  // namespace vitrine::testing
