#pragma once

#include "kernels/cpu/vocabulary_row_simd.h"

namespace vitrine::cpu {

// The tokens that can pass the filters of a row, which has some; nothing where that is not found
// out faster than by filtering the whole row.
template <class S>
Candidates Narrow(VocabularyRow<S>& vocabulary, size_t size, const SampleRow& row) {
  if (HasTopK(row, size)) return vocabulary.Largest(row.top_k);
  if (row.typical_p < 1.0f) return {};
  return row.top_p < 1.0f ? vocabulary.MostLikely(row) : vocabulary.Likely(row);
}

// SampleToken of sampling_math.h.
template <class S>
int32_t DrawToken(std::span<const float> logits, const SampleRow& row, VocabularyScratch& scratch) {
  VocabularyRow<S> vocabulary(logits, scratch);
  if (!vocabulary.Scan()) return SampleToken(logits, row);
  if (row.temperature < kLeastTemperature) return vocabulary.FirstOfLargest();
  if (!HasFilters(row, logits.size())) {
    const uint64_t total = vocabulary.TotalWeight(row.temperature);
    return vocabulary.TokenAt(DrawBelow(row, total), row.temperature);
  }
  const Candidates some = Narrow(vocabulary, logits.size(), row);
  if (some.ids.empty()) return SampleToken(logits, row);
  return some.ids[static_cast<size_t>(SampleToken(some.logits, row, some.left_out))];
}

}  // namespace vitrine::cpu
