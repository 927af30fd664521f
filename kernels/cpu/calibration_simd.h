// The rate of integer dot products, for calibration.
#pragma once

#include <cstdint>

#include "kernels/cpu/simd.h"

namespace vitrine::cpu {

// Runs `loops` times 8 independent dot products; returns the number of operations, a multiplication
// and an addition counting as two.
template <class P>
double RunIntegerProducts(int64_t loops) {
  constexpr int kChains = 8;
  alignas(64) uint8_t weights[4 * P::kLanes];
  alignas(64) int8_t quad[4];
  for (auto& byte : weights) byte = 3;
  for (auto& byte : quad) byte = 5;
  typename P::I sums[kChains];
  for (auto& sum : sums) sum = P::ZeroI();
  for (int64_t i = 0; i < loops; ++i) {
    // Operands come from memory that may have changed: nothing can be hoisted.
    __asm__ volatile("" ::"r"(weights), "r"(quad) : "memory");
    const auto operand = P::LoadBytes(weights);
#pragma GCC unroll 8
    for (int c = 0; c < kChains; ++c) sums[c] = P::Dot(sums[c], operand, quad);
#pragma GCC unroll 8
    for (int c = 0; c < kChains; ++c) P::Keep(sums[c]);
  }
  return static_cast<double>(loops) * kChains * P::kLanes * 8;
}

}  // namespace vitrine::cpu
