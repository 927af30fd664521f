#include "kernels/cpu/vocabulary_row.h"

#include <algorithm>
#include <functional>

namespace vitrine::cpu {

float KthLargest(std::span<float> values, int32_t k) {
  const auto nth = values.begin() + k - 1;
  std::ranges::nth_element(values, nth, std::greater());
  return *nth;
}

uint64_t SumOfWeights(std::span<const float> logits, float top, float temperature) {
  uint64_t sum = 0;
  for (const float logit : logits) sum += SampleWeight(logit, top, temperature);
  return sum;
}

bool HasTopK(const SampleRow& row, size_t vocabulary) {
  return row.top_k > 0 && static_cast<size_t>(row.top_k) < vocabulary;
}

bool HasFilters(const SampleRow& row, size_t vocabulary) {
  return HasTopK(row, vocabulary) || row.typical_p < 1.0f || row.top_p < 1.0f || row.min_p > 0.0f;
}

uint64_t MassOfTopP(const SampleRow& row, uint64_t total) { return TopPMass(row.top_p, total); }

uint64_t DrawBelow(const SampleRow& row, uint64_t total) {
  return UniformBelow(RandomBits(row.seed, row.position, row.choice), total);
}

int32_t PlaceAt(std::span<const float> logits, float top, float temperature, uint64_t rest) {
  int32_t place = 0;
  for (;; ++place) {
    const uint64_t weight = SampleWeight(logits[static_cast<size_t>(place)], top, temperature);
    if (rest < weight) return place;
    rest -= weight;
  }
}

}  // namespace vitrine::cpu
