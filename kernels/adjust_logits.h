#pragma once

#include <cstdint>
#include <span>

#include "kernels/device_span.h"

namespace vitrine {

struct TokenBias {
  int32_t token_id = 0;
  float bias = 0.0f;  // Finite.
};

// A token that the penalties of a row see.
struct SeenToken {
  int32_t token_id = 0;
  int32_t generated = 0;  // Occurrences in the answer; 0: only the prompt has it.
};

// What changes one row of logits before a token is drawn from it. Lists are host memory, hold ids
// below the vocabulary, and no id twice.
struct LogitAdjustment {
  int32_t row = 0;                         // Of the logits.
  std::span<const TokenBias> biases = {};  // Added.
  std::span<const int32_t> allowed = {};   // All others become -inf; empty: no such rule.
  std::span<const int32_t> banned = {};    // Become -inf.
  std::span<const int32_t> withheld = {};  // Become -inf: what may not end the answer yet.
  std::span<const SeenToken> seen = {};
  float repetition_penalty = 1.0f;  // Above 0; of every token seen.
  float presence_penalty = 0.0f;    // Of tokens generated, once.
  float frequency_penalty = 0.0f;   // Of tokens generated, per occurrence.
};

// output[i] = logits[adjustments[i].row] with biases, bans and penalties, in this order. Penalties
// are those of Keskar et al. (2019; a positive logit is divided, another multiplied) and of the
// OpenAI API (subtracted). A finite logit stays finite where no rule makes it -inf; NaN and +inf
// stay as they are, banned or not. The same bits on every backend.
struct AdjustLogitsArgs {
  DeviceSpan<const float> logits;                // [rows, vocabulary]
  std::span<const LogitAdjustment> adjustments;  // [n], host memory
  int vocabulary = 0;
  DeviceSpan<float> output;  // [n, vocabulary], apart from logits
};

}  // namespace vitrine
