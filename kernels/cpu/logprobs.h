#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/vocabulary_row.h"
#include "kernels/logprobs.h"

namespace vitrine::cpu {

// What one row of Logprobs says of `token`. Any thread; needs no memory but its stack (16 KiB).
LogprobsResult TokenLogprobs(std::span<const float> logits, int32_t token, const LogprobsRow& row,
                             const SampleRow& sampling);

// Where `token` is among `some`; kNoToken: nowhere.
int32_t PlaceOf(const Candidates& some, int32_t token);

// The same of the token at `place`, where all tokens that can be drawn are among `some`.
LogprobsResult CandidateLogprobs(const Candidates& some, int32_t place, const LogprobsRow& row,
                                 const SampleRow& sampling);

}  // namespace vitrine::cpu
