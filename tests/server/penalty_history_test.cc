#include "server/penalty_history.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>
#include <vector>

namespace vitrine::server {
namespace {

// From the definition: look at the window and count.
std::map<TokenId, int> Counted(const SamplingParams& sampling, const std::vector<TokenId>& tokens,
                               size_t prompt_length) {
  const bool sees_prompt = sampling.repetition_penalty != 1.0f;
  size_t begin = 0;
  if (sampling.penalty_window > 0 && tokens.size() > static_cast<size_t>(sampling.penalty_window)) {
    begin = tokens.size() - static_cast<size_t>(sampling.penalty_window);
  }
  std::map<TokenId, int> counts;
  for (size_t i = begin; i < tokens.size(); ++i) {
    const bool is_generated = i >= prompt_length;
    if (is_generated || sees_prompt) counts[tokens[i]] += is_generated ? 1 : 0;
  }
  return counts;
}

std::map<TokenId, int> Counted(const PenaltyHistory& history) {
  std::map<TokenId, int> counts;
  for (const SeenToken& token : history.seen()) {
    EXPECT_TRUE(counts.emplace(token.token_id, token.generated).second) << "twice";
  }
  return counts;
}

TEST(PenaltyHistory, CountsWhatTheWindowHolds) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const int length = 1 + static_cast<int>(random() % 120);
    const auto prompt_length = static_cast<size_t>(random() % 40 + 1);
    // Few ids repeat often; many ids that meet in the table test its deletions.
    const uint32_t ids = round % 2 == 0 ? 6 : 150'000;
    const SamplingParams sampling = {
        .repetition_penalty = round % 3 == 0 ? 1.0f : 1.3f,
        .presence_penalty = 0.1f,
        .penalty_window = round % 4 == 0 ? -1 : 1 + static_cast<int>(random() % 50)};
    PenaltyHistory history(sampling, length);
    const SeenToken* const memory = history.seen().data();
    std::vector<TokenId> tokens;
    for (int i = 0; i < length; ++i) {
      tokens.push_back(static_cast<TokenId>(random() % ids));
      history.Append(tokens, static_cast<int>(prompt_length));
      ASSERT_EQ(Counted(history), Counted(sampling, tokens, prompt_length))
          << "round " << round << ", length " << i + 1;
    }
    EXPECT_EQ(history.seen().data(), memory);
  }
}

TEST(PenaltyHistory, HoldsNothingWithoutPenalties) {
  PenaltyHistory history({.penalty_window = 4}, 10);
  history.Append(std::vector<TokenId>{1}, 1);
  EXPECT_TRUE(history.seen().empty());
}

}  // namespace
}  // namespace vitrine::server
