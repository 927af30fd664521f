// Angles per position of rotary embeddings: what the base and the scaling rules come to.
#pragma once

#include <vector>

namespace vitrine {

// base^(-2i / rotary_dim) for each pair i (Su et al., 2021): [rotary_dim / 2].
std::vector<double> RopeFrequencies(int rotary_dim, double base);

}  // namespace vitrine
