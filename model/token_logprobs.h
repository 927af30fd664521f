// A token's natural log-probability and the most probable alternatives, in native form.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/logprobs.h"
#include "model/batch.h"

namespace vitrine {

struct TokenLogprobs {
  float logprob = 0.0f;
  int32_t rank = 0;  // 1: the most probable; of equal ones the lower id goes first.
  int32_t top_count = 0;
  std::array<TokenId, kMaxTopLogprobs> top_ids = {};
  std::array<float, kMaxTopLogprobs> top_logprobs = {};  // Descending.
};

// What a backend computed, with the logarithm taken.
inline TokenLogprobs FinishLogprobs(const LogprobsResult& result) {
  TokenLogprobs logprobs = {.logprob = static_cast<float>(result.Logprob(result.logit)),
                            .rank = result.rank,
                            .top_count = result.top_count};
  for (int32_t i = 0; i < result.top_count; ++i) {
    const auto index = static_cast<size_t>(i);
    logprobs.top_ids[index] = result.top_ids[i];
    logprobs.top_logprobs[index] = static_cast<float>(result.Logprob(result.top_logits[i]));
  }
  return logprobs;
}

}  // namespace vitrine
