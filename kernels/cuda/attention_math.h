// What all attention kernels share: scores, visibility, the merging of partial softmaxes.
#pragma once

#include "kernels/cuda/attention.h"
#include "kernels/cuda/portable.h"

namespace vitrine::cuda {

__device__ inline float Score(const ScoreRule& rule, float dot, float slope, int query, int key) {
  float score = dot * rule.scale;
  if (rule.softcap > 0) score = rule.softcap * tanhf(score / rule.softcap);
  return __fmaf_rn(slope, static_cast<float>(key - query), score);
}
__device__ inline int FirstKey(const ScoreRule& rule, int query) {
  return rule.window > 0 && query >= rule.window ? query - rule.window + 1 : 0;
}
__device__ inline bool Sees(const ScoreRule& rule, int query, int key) {
  return key <= query && key >= FirstKey(rule, query);
}

// A softmax over some keys: the largest score and the sum of exp(score - top). The weighted values
// that belong to it are scaled alike.
struct PartialSoftmax {
  float top = -INFINITY;
  float sum = 0;

  struct Factors {
    float old, added;
  };
  // Takes the keys of `other` in; the values become old * values + added * other's values. A part
  // without visible keys must change nothing, not even the sign of a zero: see Combine.
  __device__ Factors Merge(const PartialSoftmax& other) {
    if (other.top == -INFINITY) return {1.0f, 0.0f};
    const float next = fmaxf(top, other.top);
    const Factors f{expf(top - next), expf(other.top - next)};
    top = next;
    sum = __fmaf_rn(sum, f.old, other.sum * f.added);
    return f;
  }
  __device__ float LogSumExp() const { return top + logf(sum); }
};

__device__ inline float Combine(const PartialSoftmax::Factors& f, float value, float added) {
  return f.added == 0.0f && f.old == 1.0f ? value : __fmaf_rn(value, f.old, added * f.added);
}

}  // namespace vitrine::cuda
