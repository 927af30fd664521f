// The rate of integer dot products, for calibration.
#pragma once

#include <cstdint>

#include "kernels/cpu/simd.h"

namespace vitrine::cpu {

// Runs `loops` times 8 independent dot products from registers; returns the number of operations, a
// multiplication and an addition counting as two.
template <class P>
double RunIntegerProducts(int64_t loops) {
  constexpr int kChains = 8;
  alignas(64) uint8_t bytes[4 * P::kLanes];
  for (auto& byte : bytes) byte = 3;
  auto left = P::LoadBytes(bytes);
  const auto right = left;
  typename P::I sums[kChains] = {};
  for (auto& sum : sums) P::Keep(sum);  // Else equal chains are merged, as would be products.
  for (int64_t i = 0; i < loops; ++i) {
#pragma GCC unroll 8
    for (auto& sum : sums) {
      P::Keep(left);
      sum = P::AddProducts(sum, left, right);
    }
  }
  for (auto& sum : sums) P::Keep(sum);
  return static_cast<double>(loops) * kChains * P::kLanes * 8;
}

}  // namespace vitrine::cpu
