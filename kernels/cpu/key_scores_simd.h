// Raw scores of query rows against pages of the cache, one variant per format of the keys.
#pragma once

#include <bit>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/vector_math_simd.h"

namespace vitrine::cpu {

// One query row (a token and a query head) inside one segment. It sees keys [begin, end) of it.
struct SegmentQuery {
  const float* query;  // Prepared: f32, bf16 or an Int8Query.
  int begin;
  int end;
  int position;  // Relative to the segment's first key.
  float alibi_slope;
};

// The keys and values of one segment for one key/value head. Only pages [begin, end) are read.
struct SegmentPages {
  const uint8_t* keys[kSegmentPages];
  const uint8_t* values[kSegmentPages];
  int begin;
  int end;
  int last_key;  // Keys from here on were never written.
};

// Keys and values in bf16: a step is two dimensions of 16 keys, or two tokens of 16 dimensions.
template <class S>
struct Bf16Kv {
  static constexpr bool kHasInt8Keys = false;
  using Vector = typename S::Pairs;
  using Factor = typename S::Factors;
  static constexpr int kElementsPerStep = 2;
  static constexpr int kStepFloats = S::kFactorFloats;  // Of a prepared query, and of weights.
  static VITRINE_INLINE Vector Load(const uint8_t* p) { return S::LoadPairs(p); }
  static VITRINE_INLINE Factor Broadcast(const float* p) { return S::BroadcastFactors(p); }
  static VITRINE_INLINE Vector FirstOnly(Vector x) { return S::EvenOnly(x); }
  static VITRINE_INLINE typename S::F Dot(typename S::F acc, Vector a, Factor b) {
    return S::DotPairs(acc, a, b);
  }
  // Weights of 32 keys from exponents of 2; adds the rounded weights to `sum`, so that rounding
  // cancels in the quotient.
  static VITRINE_INLINE void Weigh(typename S::F low, typename S::F high, float* weights, int key,
                                   typename S::F& sum) {
    sum = S::AddFactors(sum, Exp2ForBf16<S>(low), Exp2ForBf16<S>(high),
                        weights + key / kElementsPerStep * kStepFloats);
  }
  static VITRINE_INLINE void PrepareQuery(const float* q, int head_dim, float* prepared) {
    const auto at = [prepared](int d) { return prepared + d / kElementsPerStep * kStepFloats; };
    int d = 0;
    for (; d + 16 <= head_dim; d += 16) S::StoreFactors(at(d), S::Load(q + d));
    if (d < head_dim) S::StoreFactors(at(d), S::LoadPartial(q + d, head_dim - d));
  }
};

template <class S>
struct F32Kv {
  static constexpr bool kHasInt8Keys = false;
  using Vector = typename S::F;
  using Factor = typename S::F;
  static constexpr int kElementsPerStep = 1;
  static constexpr int kStepFloats = 1;
  static VITRINE_INLINE Vector Load(const uint8_t* p) {
    return S::Load(reinterpret_cast<const float*>(p));
  }
  static VITRINE_INLINE Factor Broadcast(const float* p) { return S::Set(*p); }
  static VITRINE_INLINE Vector FirstOnly(Vector x) { return x; }
  static VITRINE_INLINE typename S::F Dot(typename S::F acc, Vector a, Factor b) {
    return S::Fma(a, b, acc);
  }
  static VITRINE_INLINE void Weigh(typename S::F low, typename S::F high, float* weights, int key,
                                   typename S::F& sum) {
    const auto first = Exp2<S>(low);
    const auto second = Exp2<S>(high);
    S::Store(weights + key, first);
    S::Store(weights + key + 16, second);
    sum = S::Add(S::Add(sum, first), second);
  }
  static VITRINE_INLINE void PrepareQuery(const float* q, int head_dim, float* prepared) {
    int d = 0;
    for (; d + 16 <= head_dim; d += 16) S::Store(prepared + d, S::Load(q + d));
    if (d < head_dim) S::Store(prepared + d, S::LoadPartial(q + d, head_dim - d));
  }
};

// A query against int8 keys, in the place of padded_dim floats: the int8 values, then for every
// group of dimensions -128 * their sum, which removes the offset of the keys, and last the scale.
constexpr int StartWord(int padded_dim, int group) { return padded_dim / 4 + group; }
constexpr int ScaleWord(int padded_dim) { return padded_dim - 1; }

// Keys in int8, values in bf16. A query is rounded to int8 with one scale for all its dimensions.
template <class S>
struct Int8KeyKv : Bf16Kv<S> {
  static constexpr bool kHasInt8Keys = true;
  static void PrepareQuery(const float* q, int head_dim, float* prepared) {
    const int padded_dim = CpuKvStorage::PaddedDim(head_dim);
    const auto group = [&](int d) VITRINE_LAMBDA_INLINE {
      return LoadUpTo16<S>(q + d, head_dim - d < kKeyGroup ? head_dim - d : kKeyGroup);
    };
    float largest = 0.0f;
    for (int d = 0; d < head_dim; d += kKeyGroup) {
      const float magnitude = S::LargestMagnitude(group(d), group(d));
      if (magnitude > largest || magnitude != magnitude) largest = magnitude;  // NaN stays.
    }
    const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
    auto* values = reinterpret_cast<int8_t*>(prepared);
    for (int d = 0; d < head_dim; d += kKeyGroup) {
      const int32_t sum = S::Quantize(group(d), inverse, values + d);
      prepared[StartWord(padded_dim, d / kKeyGroup)] = std::bit_cast<float>(-128 * sum);
    }
    prepared[ScaleWord(padded_dim)] = largest * (1.0f / 127.0f);
  }
};

// Integer sums of one group of dimensions, times the scales of the keys, are added to totals.
template <class S, int kRows, int kPages, bool kFetch>
VITRINE_INLINE void AddKeyGroup(const SegmentQuery* rows, const uint8_t* const* keys,
                                const uint8_t* const* values, int padded_dim, int group, int half,
                                typename S::Panel::F (*totals)[kPages]) {
  using P = typename S::Panel;
  typename P::I sums[kRows][kPages];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const float start = rows[r].query[StartWord(padded_dim, group)];
#pragma GCC unroll 2
    for (auto& sum : sums[r]) {
      sum = P::kDotWideIsCentred ? P::ZeroI() : P::SetI(std::bit_cast<int32_t>(start));
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kKeyGroup / 4; ++i) {
    const int quad = group * (kKeyGroup / 4) + i;
    typename P::Bytes key[kPages];
#pragma GCC unroll 2
    for (int p = 0; p < kPages; ++p) {
      key[p] = P::LoadBytes(keys[p] + 64 * quad + 4 * P::kLanes * half);
      if constexpr (kFetch) {
        S::FetchToL2(values[p] + 128 * quad);
        S::FetchToL2(values[p] + 128 * quad + 64);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto* query = reinterpret_cast<const int8_t*>(rows[r].query) + 4 * quad;
#pragma GCC unroll 2
      for (int p = 0; p < kPages; ++p) sums[r][p] = P::DotWide(sums[r][p], key[p], query);
    }
  }
#pragma GCC unroll 2
  for (int p = 0; p < kPages; ++p) {
    const float* scales = KeyScales(keys[p], padded_dim) + group * kKvBlockTokens;
    const auto scale = P::Load(scales + P::kLanes * half);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      totals[r][p] = P::Fma(P::ToFloat(sums[r][p]), scale, totals[r][p]);
    }
  }
}

// Scores of kPages pages of int8 keys. Sums and totals of 6 rows x 2 pages take 24 registers.
template <class S, int kRows, int kPages, bool kFetch>
VITRINE_INLINE void ScoreInt8Keys(const SegmentQuery* rows, const uint8_t* const* keys,
                                  const uint8_t* const* values, int head_dim, int column,
                                  float (*scores)[kAttentionSegmentKeys + 16]) {
  using P = typename S::Panel;
  const int padded_dim = CpuKvStorage::PaddedDim(head_dim);
  for (int half = 0; half < kKvBlockTokens / P::kLanes; ++half) {
    typename P::F totals[kRows][kPages];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (auto& total : totals[r]) total = P::Zero();
    }
#pragma GCC unroll 1
    for (int group = 0; group < padded_dim / kKeyGroup; ++group) {
      AddKeyGroup<S, kRows, kPages, kFetch>(rows, keys, values, padded_dim, group, half, totals);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto scale = P::Set(rows[r].query[ScaleWord(padded_dim)]);
      float* out = scores[r] + column + P::kLanes * half;
#pragma GCC unroll 2
      for (int p = 0; p < kPages; ++p) {
        P::Store(out + p * kKvBlockTokens, P::Mul(totals[r][p], scale));
      }
    }
  }
}

// Raw scores of `kRows` rows against S::kAttentionVectors pages; pages past the last one repeat it
// and their scores are overwritten later.
template <class S, class Kv, int kRows, bool kFetch>
VITRINE_INLINE void ScorePages(const SegmentQuery* rows, const SegmentPages& pages, int first,
                               int head_dim, float (*scores)[kAttentionSegmentKeys + 16]) {
  constexpr int kPages = S::kAttentionVectors;
  const uint8_t* keys[kPages];
  const uint8_t* values[kPages];
  for (int p = 0; p < kPages; ++p) {
    const int index = first + p < pages.end ? first + p : pages.end - 1;
    keys[p] = pages.keys[index];
    values[p] = pages.values[index];
  }
  if constexpr (Kv::kHasInt8Keys) {
    constexpr int kStep = kPages < 2 ? kPages : 2;
    for (int p = 0; p < kPages && first + p < kSegmentPages; p += kStep) {
      ScoreInt8Keys<S, kRows, kStep, kFetch>(rows, keys + p, values + p, head_dim,
                                             (first + p) * kKvBlockTokens, scores);
    }
    return;
  }
  const int steps = (head_dim + Kv::kElementsPerStep - 1) / Kv::kElementsPerStep;
  typename S::F sums[kRows][kPages];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (auto& sum : sums[r]) sum = S::Zero();
  }
#pragma GCC unroll 1
  for (int step = 0; step < steps; ++step) {
    typename Kv::Vector key[kPages];
#pragma GCC unroll 4
    for (int p = 0; p < kPages; ++p) {
      key[p] = Kv::Load(keys[p] + 64 * step);
      if constexpr (kFetch) S::FetchToL2(values[p] + 64 * step);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto query = Kv::Broadcast(rows[r].query + step * Kv::kStepFloats);
#pragma GCC unroll 4
      for (int p = 0; p < kPages; ++p) sums[r][p] = Kv::Dot(sums[r][p], key[p], query);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int p = 0; p < kPages; ++p) {
      if (first + p < kSegmentPages) {
        S::Store(scores[r] + (first + p) * kKvBlockTokens, sums[r][p]);
      }
    }
  }
}

}  // namespace vitrine::cpu
