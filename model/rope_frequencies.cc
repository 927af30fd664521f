#include "model/rope_frequencies.h"

#include <cmath>
#include <cstddef>

namespace vitrine {

std::vector<double> RopeFrequencies(int rotary_dim, double base) {
  std::vector<double> frequencies(static_cast<size_t>(rotary_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(base, -2.0 * static_cast<double>(i) / rotary_dim);
  }
  return frequencies;
}

}  // namespace vitrine
