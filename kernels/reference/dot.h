#pragma once

#include <cstdint>

namespace vitrine::reference {

// Products of two f32 are exact in f64.
inline double Dot(const float* a, const float* b, int64_t columns) {
  double sum = 0;
  for (int64_t c = 0; c < columns; ++c) sum += double{a[c]} * b[c];
  return sum;
}

}  // namespace vitrine::reference
