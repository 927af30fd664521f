#pragma once

#include "kernels/cpu/logprobs.h"
#include "kernels/cpu/sample_simd.h"

namespace vitrine::cpu {

// Of a whole row at one temperature. False: left to TokenLogprobs.
template <class S>
bool UnfilteredLogprobs(VocabularyRow<S>& vocabulary, std::span<const float> logits, int32_t token,
                        const LogprobsRow& row, float temperature, LogprobsResult& result) {
  const float logit = logits[static_cast<size_t>(token)];
  if (!VocabularyRow<S>::IsPlain(logit)) return false;
  // Ranks and the list are of tokens that can be drawn.
  const std::span<const float> own = logits.subspan(static_cast<size_t>(token), 1);
  if (row.is_processed && SumOfWeights(own, vocabulary.top(), temperature) == 0) return false;
  result = {};
  if (row.top_count > 0) {
    const Candidates some = vocabulary.Largest(row.top_count);
    if (some.ids.empty()) return false;
    result = CandidateLogprobs(some, 0, row, {.temperature = temperature});
  }
  result.top_logit = vocabulary.top();
  result.temperature = temperature;
  result.logit = logit;
  result.rank = vocabulary.CountAbove(token) + 1;
  result.total_weight = vocabulary.TotalWeight(temperature);
  return true;
}

template <class S>
LogprobsResult RowLogprobs(const LogprobsArgs& args, size_t index, VocabularyScratch& scratch) {
  const LogprobsRow& row = args.rows[index];
  const std::span<const float> logits = args.LogitsOf(row);
  const int32_t token = args.TokenOf(row);
  const SampleRow sampling = args.SamplingOf(row);
  VocabularyRow<S> vocabulary(logits, scratch);
  if (token < 0 || !vocabulary.Scan()) return TokenLogprobs(logits, token, row, sampling);
  const bool is_greedy = row.is_processed && sampling.temperature < kLeastTemperature;
  if (!is_greedy && (!row.is_processed || !HasFilters(sampling, logits.size()))) {
    LogprobsResult result;
    const float temperature = row.is_processed ? sampling.temperature : 1.0f;
    if (UnfilteredLogprobs(vocabulary, logits, token, row, temperature, result)) return result;
    return TokenLogprobs(logits, token, row, sampling);
  }
  const Candidates some =
      is_greedy ? vocabulary.From(vocabulary.top()) : Narrow(vocabulary, logits.size(), sampling);
  const int32_t place = PlaceOf(some, token);
  if (place == kNoToken) return TokenLogprobs(logits, token, row, sampling);
  return CandidateLogprobs(some, place, row, sampling);
}

}  // namespace vitrine::cpu
