// Log-probabilities for people: one line per token, for stderr.
#pragma once

#include <string>

#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {

// "  12  -0.1234  rank 1  " Paris"  | " Paris" -0.1234, " the" -2.3100": position, natural log,
// rank, the token's bytes escaped as in C, and its alternatives. A prompt token, whose bytes are
// not sent, is its id. Ends with a newline.
std::string FormatLogprobs(const v1::Token& token);
std::string FormatLogprobs(const v1::PromptLogprob& token, int position);

}  // namespace vitrine::client
