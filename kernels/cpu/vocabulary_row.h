// Private memory for one row of logits, and what of its reading is the same on every instruction
// set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/simd.h"
#include "kernels/sampling_math.h"

namespace vitrine::cpu {

inline constexpr int kLogitLanes = 16;
inline constexpr int kGroupTokens = 1024;  // Share 16 largest logits, one per lane.
inline constexpr int kSumTokens = 256;     // Share a sum of weights: 16 per lane are exact in f32.
inline constexpr int kMaxCandidates = 16384;

struct VocabularyScratch {
  float maxima[kMaxSampleVocabulary / kGroupTokens * kLogitLanes];
  float selection[kMaxSampleVocabulary / kGroupTokens * kLogitLanes];
  uint64_t sums[kMaxSampleVocabulary / kSumTokens];
  int32_t ids[kMaxCandidates + kLogitLanes];  // Whole vectors are written.
  float logits[kMaxCandidates];
};

// Some tokens of a row in order of ids, and the weight of the others where it was asked for.
struct Candidates {
  std::span<const float> logits;
  std::span<const int32_t> ids;
  uint64_t left_out = 0;
};

// The k-th largest of `values`, which it reorders. 1 <= k <= values.size().
float KthLargest(std::span<float> values, int32_t k);

// Of sampling_math.h, whose inline functions files for one instruction set must not instantiate.
bool HasTopK(const SampleRow& row, size_t vocabulary);
bool HasFilters(const SampleRow& row, size_t vocabulary);
uint64_t SumOfWeights(std::span<const float> logits, float top, float temperature);
uint64_t MassOfTopP(const SampleRow& row, uint64_t total);
uint64_t DrawBelow(const SampleRow& row, uint64_t total);
// The first place at which the running sum of weights exceeds `rest`.
int32_t PlaceAt(std::span<const float> logits, float top, float temperature, uint64_t rest);

}  // namespace vitrine::cpu
