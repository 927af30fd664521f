// Every sampler of every backend draws from its exact distribution.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/sample.h"
#include "tests/kernels/backends.h"

namespace vitrine::testing {
namespace {

constexpr int kVocabulary = 24;

// Lists are the storage of the adjustment's spans.
struct Sampler {
  std::string name;
  SampleRow row;
  std::vector<TokenBias> biases = {};
  std::vector<int32_t> allowed = {};
  std::vector<int32_t> banned = {};
  std::vector<SeenToken> seen = {};
  float repetition = 1.0f;
  float presence = 0.0f;
  float frequency = 0.0f;

  LogitAdjustment Adjustment(int32_t sample) const {
    return {.row = sample,
            .biases = biases,
            .allowed = allowed,
            .banned = banned,
            .seen = seen,
            .repetition_penalty = repetition,
            .presence_penalty = presence,
            .frequency_penalty = frequency};
  }
};

std::vector<Sampler> Samplers() {
  const std::vector<SeenToken> seen = {{0, 2}, {3, 0}, {5, 1}, {9, 4}, {11, 1}, {17, 0}};
  return {
      {.name = "temperature", .row = {.temperature = 1.0f}},
      {.name = "hot", .row = {.temperature = 2.5f}},
      {.name = "top_k", .row = {.temperature = 1.5f, .top_k = 9}},
      {.name = "typical", .row = {.temperature = 3.0f, .typical_p = 0.7f}},
      {.name = "top_p", .row = {.temperature = 1.5f, .top_p = 0.8f}},
      {.name = "min_p", .row = {.temperature = 2.0f, .min_p = 0.1f}},
      {.name = "all filters",
       .row =
           {.temperature = 1.7f, .top_k = 18, .typical_p = 0.95f, .top_p = 0.9f, .min_p = 0.05f}},
      {.name = "logit_bias",
       .row = {.temperature = 1.0f},
       .biases = {{1, 2.0f}, {2, -1.0f}, {20, 3.5f}}},
      {.name = "allowed and banned",
       .row = {.temperature = 1.5f},
       .allowed = {1, 4, 6, 7, 12, 13, 14, 22},
       .banned = {4, 22}},
      {.name = "repetition", .row = {.temperature = 1.5f}, .seen = seen, .repetition = 1.8f},
      {.name = "presence", .row = {.temperature = 1.5f}, .seen = seen, .presence = -1.5f},
      {.name = "frequency", .row = {.temperature = 1.5f}, .seen = seen, .frequency = 0.7f},
      {.name = "everything",
       .row = {.temperature = 1.7f, .top_k = 18, .typical_p = 0.97f, .top_p = 0.9f, .min_p = 0.02f},
       .biases = {{2, 1.5f}},
       .banned = {7},
       .seen = seen,
       .repetition = 1.3f,
       .presence = 0.4f,
       .frequency = -0.2f},
  };
}

// The protocol's words, in f64, by sorting.
std::vector<double> ExactDistribution(const std::vector<float>& logits, const Sampler& sampler) {
  std::vector<double> scores(logits.begin(), logits.end());
  const auto score = [&](int32_t id) -> double& { return scores[static_cast<size_t>(id)]; };
  for (const TokenBias& entry : sampler.biases) score(entry.token_id) += entry.bias;
  for (const SeenToken& token : sampler.seen) {
    double& one = score(token.token_id);
    one = one > 0 ? one / sampler.repetition : one * sampler.repetition;
    if (token.generated > 0) one -= sampler.presence + token.generated * sampler.frequency;
  }
  std::vector<int> kept;
  for (int id = 0; id < kVocabulary; ++id) {
    const bool is_allowed =
        sampler.allowed.empty() || std::ranges::find(sampler.allowed, id) != sampler.allowed.end();
    const bool is_banned = std::ranges::find(sampler.banned, id) != sampler.banned.end();
    if (is_allowed && !is_banned) kept.push_back(id);
  }
  std::ranges::sort(kept, std::ranges::greater(), score);
  const SampleRow& row = sampler.row;
  if (row.top_k > 0) kept.resize(std::min(kept.size(), static_cast<size_t>(row.top_k)));

  std::vector<double> probabilities(logits.size());
  const auto probability = [&](int id) { return probabilities[static_cast<size_t>(id)]; };
  const auto normalize = [&] {
    std::ranges::fill(probabilities, 0.0);
    double total = 0;
    for (const int id : kept) total += std::exp(score(id) / row.temperature);
    for (const int id : kept) {
      probabilities[static_cast<size_t>(id)] = std::exp(score(id) / row.temperature) / total;
    }
  };
  const auto keep_mass = [&](double mass) {
    double sum = 0;
    size_t count = 0;
    while (sum < mass && count < kept.size()) sum += probability(kept[count++]);
    kept.resize(count);
  };
  normalize();
  if (row.typical_p < 1.0f) {
    double entropy = 0;
    for (const int id : kept) entropy -= probability(id) * std::log(probability(id));
    std::ranges::sort(kept, {},
                      [&](int id) { return std::abs(-std::log(probability(id)) - entropy); });
    keep_mass(row.typical_p);
    normalize();
    std::ranges::sort(kept, std::ranges::greater(), score);
  }
  if (row.top_p < 1.0f) keep_mass(row.top_p);
  normalize();
  const double least = row.min_p * probability(kept[0]);
  std::erase_if(kept, [&](int id) { return probability(id) < least; });
  normalize();
  return probabilities;
}

// Pearson's statistic of draws against the exact distribution, with rare tokens pooled.
double ChiSquare(const std::vector<int>& counts, const std::vector<double>& probabilities,
                 int draws, int& degrees) {
  double statistic = 0;
  double rare_expected = 0;
  double rare_count = 0;
  degrees = -1;
  for (size_t id = 0; id < counts.size(); ++id) {
    const double expected = probabilities[id] * draws;
    if (expected < 5) {
      rare_expected += expected;
      rare_count += counts[id];
      continue;
    }
    statistic += (counts[id] - expected) * (counts[id] - expected) / expected;
    ++degrees;
  }
  if (rare_expected >= 5) {
    statistic += (rare_count - rare_expected) * (rare_count - rare_expected) / rare_expected;
    ++degrees;
  }
  return statistic;
}

class SamplingDistributionTest : public ::testing::TestWithParam<BackendCase> {
 protected:
  // Counts of `draws` tokens; no two draws share (seed, choice, position).
  std::vector<int> Draw(const std::vector<float>& logits, const Sampler& sampler, int draws) {
    constexpr int kBatch = 200;
    Harness harness(GetParam());
    std::vector<float> rows_of_logits;
    std::vector<LogitAdjustment> adjustments;
    for (int r = 0; r < kBatch; ++r) {
      rows_of_logits.insert(rows_of_logits.end(), logits.begin(), logits.end());
      adjustments.push_back(sampler.Adjustment(r));
    }
    const DeviceSpan<const float> device_logits = harness.Upload(rows_of_logits);
    const DeviceSpan<float> adjusted = harness.Zeros(int64_t{kBatch} * kVocabulary);
    const DeviceSpan<int32_t> ids = harness.Integers(kBatch);
    std::vector<int> counts(logits.size());
    std::vector<SampleRow> rows(kBatch, sampler.row);
    for (int done = 0; done < draws; done += kBatch) {
      for (int r = 0; r < kBatch; ++r) {
        SampleRow& row = rows[static_cast<size_t>(r)];
        row.seed = 77 + static_cast<uint64_t>(r % 7);
        row.choice = static_cast<uint32_t>(r % 3);
        row.position = done + r;
        row.adjusted_row = r;
      }
      harness->AdjustLogits({.logits = device_logits,
                             .adjustments = adjustments,
                             .vocabulary = kVocabulary,
                             .output = adjusted});
      harness->Sample({.logits = device_logits,
                       .adjusted = adjusted,
                       .rows = rows,
                       .vocabulary = kVocabulary,
                       .token_ids = ids});
      for (const int32_t id : harness.Download(ids)) ++counts.at(static_cast<size_t>(id));
    }
    return counts;
  }
};

TEST_P(SamplingDistributionTest, DrawsFollowTheExactDistribution) {
  Random random(5);
  const std::vector<float> logits = random.Normal(kVocabulary, 2.0f);
  // An emulated device takes milliseconds for a row.
  const int draws = GetParam().backend == "cuda" ? 400 : 5000;
  for (const Sampler& sampler : Samplers()) {
    SCOPED_TRACE(sampler.name);
    const std::vector<double> probabilities = ExactDistribution(logits, sampler);
    const std::vector<int> counts = Draw(logits, sampler, draws);
    for (size_t id = 0; id < counts.size(); ++id) {
      if (probabilities[id] == 0) {
        EXPECT_EQ(counts[id], 0) << id;
      }
    }
    int degrees = 0;
    const double statistic = ChiSquare(counts, probabilities, draws, degrees);
    // Five standard deviations of the chi-square distribution.
    EXPECT_LT(statistic, degrees + 5 * std::sqrt(2.0 * degrees));
    EXPECT_GE(degrees, 2);
  }
}

VITRINE_INSTANTIATE_BACKENDS(SamplingDistributionTest);

}  // namespace
}  // namespace vitrine::testing
