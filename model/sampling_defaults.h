// How a model's makers want its tokens drawn where a request does not say.
#pragma once

#include <optional>

namespace vitrine {

// Within the ranges of the protocol's fields of the same names; none: the model says nothing.
struct SamplingDefaults {
  std::optional<float> temperature = {};  // 0: greedy
  std::optional<int> top_k = {};          // 0: off
  std::optional<float> top_p = {};
  std::optional<float> min_p = {};
  std::optional<float> typical_p = {};
  std::optional<float> repetition_penalty = {};
};

}  // namespace vitrine
