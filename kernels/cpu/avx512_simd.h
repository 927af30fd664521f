// The vector vocabulary of simd.h on AVX-512 with VNNI and BF16.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/simd.h"

namespace vitrine::cpu {

struct Avx512 {
  static constexpr int kLanes = 16;
  static constexpr bool kDotWideIsCentred = false;
  static constexpr bool kAddsInPairs = false;
  // Sizes that fill 32 registers: integer sums of 4 rows hide the latency of VPDPBUSD, totals of 8
  // rows fit beside a decoded block, or sums of 4 rows beside two, attention takes 6 rows x 4
  // vectors.
  static constexpr int kRowsInFlight = 4;
  static constexpr int kRegisterRows = 8;
  static constexpr bool kTakesTwoPanels = true;
  static constexpr int kFloatRows = 8;
  static constexpr int kAttentionRows = 6;
  static constexpr int kAttentionVectors = 4;

  using Panel = Avx512;
  using F = __m512;
  using I = __m512i;
  using Bytes = __m512i;
  using Pairs = __m512bh;
  using Factors = __m512bh;
  static constexpr int kFactorFloats = 1;

  static VITRINE_INLINE F Zero() { return _mm512_setzero_ps(); }
  static VITRINE_INLINE F Set(float x) { return _mm512_set1_ps(x); }
  static VITRINE_INLINE F Load(const float* p) { return _mm512_loadu_ps(p); }
  static VITRINE_INLINE void Store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static VITRINE_INLINE F LoadPartial(const float* p, int n) {
    return _mm512_maskz_loadu_ps(FirstLanes(n), p);
  }
  static VITRINE_INLINE void StorePartial(float* p, F x, int n) {
    _mm512_mask_storeu_ps(p, FirstLanes(n), x);
  }
  static VITRINE_INLINE F Add(F a, F b) { return _mm512_add_ps(a, b); }
  static VITRINE_INLINE F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static VITRINE_INLINE F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static VITRINE_INLINE F Div(F a, F b) { return _mm512_div_ps(a, b); }
  static VITRINE_INLINE F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static VITRINE_INLINE F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static VITRINE_INLINE F Min(F a, F b) { return _mm512_min_ps(a, b); }
  static VITRINE_INLINE F Abs(F x) { return _mm512_abs_ps(x); }
  // a < b ? yes : no
  static VITRINE_INLINE F SelectLess(F a, F b, F yes, F no) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), no, yes);
  }
  static VITRINE_INLINE F CopySign(F magnitude, F sign) {
    const __m512i bit = _mm512_set1_epi32(INT32_MIN);
    return AsF(_mm512_or_si512(_mm512_andnot_si512(bit, AsI(magnitude)),
                               _mm512_and_si512(bit, AsI(sign))));
  }
  static VITRINE_INLINE F Round(F x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static VITRINE_INLINE F Power2(F x, F n) { return _mm512_scalef_ps(x, n); }
  // VSCALEFPS takes four times the time of an addition.
  static VITRINE_INLINE F Power2Near(F x, F n) {
    return AsF(_mm512_add_epi32(AsI(x), _mm512_slli_epi32(_mm512_cvtps_epi32(n), 23)));
  }
  static VITRINE_INLINE F ToFloat(I x) { return _mm512_cvtepi32_ps(x); }
  static VITRINE_INLINE float First(F x) { return _mm512_cvtss_f32(x); }
  static VITRINE_INLINE float ReduceAdd(F x) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static VITRINE_INLINE float ReduceMax(F x) { return _mm512_reduce_max_ps(x); }
  // Bit i: a[i] > b[i].
  static VITRINE_INLINE uint32_t LanesAbove(F a, F b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
  }
  // Writes first + i for every bit i of `lanes`, up to 16 places may change; returns how many.
  static VITRINE_INLINE int StorePlaces(uint32_t lanes, int32_t first, int32_t* places) {
    const __m512i steps = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i all = _mm512_add_epi32(steps, _mm512_set1_epi32(first));
    _mm512_storeu_si512(places, _mm512_maskz_compress_epi32(static_cast<__mmask16>(lanes), all));
    return std::popcount(lanes);
  }

  // Largest magnitude of 32 values; NaN if there is one.
  static VITRINE_INLINE float LargestMagnitude(F low, F high) {
    const __m512i mask = _mm512_set1_epi32(INT32_MAX);
    const __m512i bits =
        _mm512_max_epi32(_mm512_and_si512(AsI(low), mask), _mm512_and_si512(AsI(high), mask));
    return std::bit_cast<float>(_mm512_reduce_max_epi32(bits));
  }
  // Rounds x * inverse (at most 127 in magnitude; NaN becomes -127) to int8 and returns the sum.
  static VITRINE_INLINE int32_t Quantize(F x, float inverse, int8_t* values) {
    const F scaled = _mm512_max_ps(_mm512_mul_ps(x, Set(inverse)), Set(-127.0f));
    const __m512i whole = _mm512_cvtps_epi32(scaled);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(values), _mm512_cvtsepi32_epi8(whole));
    return _mm512_reduce_add_epi32(whole);
  }

  // Sixteen blocks of 32 values at once: what goes across the lanes of a block is done for all of
  // them together, a lane for each. Row is an ActivationRow.
  static constexpr bool kQuantizesTogether = true;
  template <class Row>
  static void QuantizeBlocks(const float (*values)[32], Row* const* rows) {
    const F largest = LargestMagnitudes(values);
    const __mmask16 positive = _mm512_cmp_ps_mask(largest, Zero(), _CMP_GT_OQ);
    alignas(64) float inverses[16];
    Store(inverses, _mm512_maskz_div_ps(positive, Set(127.0f), largest));
    __m512i sums[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const int a = i < 4 ? i : i + 4;  // With row a + 4 beside it, sums end in the rows' order.
      const __m512i bytes = QuantizePair(values[a], inverses[a], values[a + 4], inverses[a + 4]);
      StoreHalf(rows[a]->values, _mm512_castsi512_si256(bytes));
      StoreHalf(rows[a + 4]->values, _mm512_extracti64x4_epi64(bytes, 1));
      sums[i] = _mm512_dpbusd_epi32(ZeroI(), _mm512_set1_epi8(1), bytes);
    }
    const I first = AddLanes(sums);
    const I second = AddLanes(sums + 4);
    const I low_sum = _mm512_shuffle_i32x4(first, second, 0x88);
    const I sum = AddI(low_sum, _mm512_shuffle_i32x4(first, second, 0xDD));
    const F scale = Mul(largest, Set(1.0f / 127.0f));
    StoreFields(scale, Mul(scale, ToFloat(sum)), _mm512_sub_epi32(ZeroI(), ShiftLeft<3>(sum)),
                low_sum, rows);
  }

  static VITRINE_INLINE I ZeroI() { return _mm512_setzero_si512(); }
  static VITRINE_INLINE I SetI(int32_t x) { return _mm512_set1_epi32(x); }
  static VITRINE_INLINE I AddI(I a, I b) { return _mm512_add_epi32(a, b); }
  static VITRINE_INLINE I MulI(I a, I b) { return _mm512_mullo_epi32(a, b); }
  template <int kBits>
  static VITRINE_INLINE I ShiftLeft(I x) {
    return _mm512_slli_epi32(x, kBits);
  }

  static VITRINE_INLINE I AndI(I a, I b) { return _mm512_and_si512(a, b); }
  template <int kBits>
  static VITRINE_INLINE I ShiftRight(I x) {
    return _mm512_srli_epi32(x, kBits);
  }
  static VITRINE_INLINE I LoadU8(const uint8_t* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static VITRINE_INLINE I LoadI8(const uint8_t* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }

  // Byte `kByte` of every 32-bit lane.
  template <int kByte>
  static VITRINE_INLINE I ByteOf(Bytes x) {
    return _mm512_and_si512(_mm512_srli_epi32(x, 8 * kByte), _mm512_set1_epi32(255));
  }
  static VITRINE_INLINE Bytes LoadBytes(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static VITRINE_INLINE Bytes LowNibbles(Bytes x) {
    return _mm512_and_si512(x, _mm512_set1_epi8(15));
  }
  static VITRINE_INLINE Bytes HighNibbles(Bytes x) {
    return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15));
  }
  static VITRINE_INLINE Bytes Or(Bytes a, Bytes b) { return _mm512_or_si512(a, b); }
  template <int kFrom, int kMask, int kTo>
  static VITRINE_INLINE Bytes Field(Bytes x) {
    if constexpr (kFrom > kTo) x = _mm512_srli_epi16(x, kFrom - kTo);
    if constexpr (kFrom < kTo) x = _mm512_slli_epi16(x, kTo - kFrom);
    return _mm512_and_si512(x, _mm512_set1_epi8(kMask << kTo));
  }
  static VITRINE_INLINE Bytes Lookup(const uint8_t* table, Bytes index) {
    const __m128i values = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), index);
  }
  static VITRINE_INLINE I Dot(I acc, Bytes weights, const int8_t* quad) {
    int32_t bits;
    std::memcpy(&bits, quad, 4);
    return AddProducts(acc, weights, _mm512_set1_epi32(bits));
  }
  static VITRINE_INLINE I DotWide(I acc, Bytes weights, const int8_t* quad) {
    return Dot(acc, weights, quad);
  }
  // The cheapest way to add a product to each of many sums.
  static VITRINE_INLINE I AddProducts(I acc, Bytes weights, Bytes values) {
    return _mm512_dpbusd_epi32(acc, weights, values);
  }
  // Hides where a value came from, so that equal computations are not merged.
  template <class Vector>
  static VITRINE_INLINE void Keep(Vector& x) {
    __asm__ volatile("" : "+v"(x));
  }
  static VITRINE_INLINE F LoadF16(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static VITRINE_INLINE F LoadBf16(const uint8_t* p) {
    const __m512i wide =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return AsF(_mm512_slli_epi32(wide, 16));
  }

  static VITRINE_INLINE Pairs LoadPairs(const void* p) {
    return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p));
  }
  static VITRINE_INLINE Factors BroadcastFactors(const float* p) {
    int32_t bits;
    std::memcpy(&bits, p, 4);
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(bits));
  }
  static VITRINE_INLINE void StoreFactors(float* p, F x) {
    StoreBf16(reinterpret_cast<uint16_t*>(p), x);
  }
  static VITRINE_INLINE F AddFactors(F sum, F low, F high, float* p) {
    const __m512bh pairs = _mm512_cvtne2ps_pbh(high, low);
    _mm512_storeu_si512(p, reinterpret_cast<__m512i>(pairs));
    return _mm512_dpbf16_ps(sum, pairs, reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f803f80)));
  }
  static VITRINE_INLINE Pairs EvenOnly(Pairs x) {
    return reinterpret_cast<__m512bh>(
        _mm512_and_si512(reinterpret_cast<__m512i>(x), _mm512_set1_epi32(0xffff)));
  }
  static VITRINE_INLINE F DotPairs(F acc, Pairs a, Factors b) {
    return _mm512_dpbf16_ps(acc, a, b);
  }
  static VITRINE_INLINE void StoreBf16(uint16_t* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
  }

  // Writes lane i to p[2i] and leaves p[2i + 1] alone.
  static VITRINE_INLINE void StoreBf16Strided(uint16_t* p, F x) {
    const __m512i wide = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
    _mm512_mask_storeu_epi16(p, 0x55555555u, wide);
  }

  // Rotation of the pairs (2i, 2i+1).
  static VITRINE_INLINE F SwapNeighbours(F x) { return _mm512_permute_ps(x, 0xB1); }
  // Lanes 2i and 2i+1 are p[i].
  static VITRINE_INLINE F LoadTwice(const float* p) {
    const __m512i index = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
    return _mm512_permutexvar_ps(index, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
  }
  static VITRINE_INLINE F NegateEven(F x) {
    return AsF(_mm512_xor_si512(AsI(x), _mm512_set1_epi64(int64_t{0x80000000})));
  }

  // To L2: what is fetched is larger than L1.
  static VITRINE_INLINE void FetchToL2(const void* p) {
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
  }
  // A line that will be written and that another core may own.
  static VITRINE_INLINE void FetchForWriting(const void* p) { __builtin_prefetch(p, 1); }

 private:
  static VITRINE_INLINE __m512i AsI(F x) { return _mm512_castps_si512(x); }
  static VITRINE_INLINE F AsF(__m512i x) { return _mm512_castsi512_ps(x); }
  static VITRINE_INLINE __mmask16 FirstLanes(int n) {
    return static_cast<__mmask16>((1u << n) - 1u);
  }

  // Lane r: the largest magnitude of values[r], as LargestMagnitude has it.
  static VITRINE_INLINE F LargestMagnitudes(const float (*values)[32]) {
    const auto of_row = [values](int row) VITRINE_LAMBDA_INLINE {
      const __m512i mask = _mm512_set1_epi32(INT32_MAX);
      return _mm512_max_epi32(_mm512_and_si512(_mm512_loadu_si512(values[row]), mask),
                              _mm512_and_si512(_mm512_loadu_si512(values[row] + 16), mask));
    };
    const auto halves = [](__m512i a, __m512i b) VITRINE_LAMBDA_INLINE {
      return _mm512_max_epi32(_mm512_shuffle_i32x4(a, b, 0x44), _mm512_shuffle_i32x4(a, b, 0xEE));
    };
    const auto quarters = [](__m512i a, __m512i b) VITRINE_LAMBDA_INLINE {
      return _mm512_max_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD));
    };
    __m512i rows[4];  // Row 4 k + i in quarter k of the i-th.
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      rows[i] = quarters(halves(of_row(i), of_row(4 + i)), halves(of_row(8 + i), of_row(12 + i)));
    }
    const auto pairs = [](__m512i a, __m512i b) VITRINE_LAMBDA_INLINE {
      return _mm512_max_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    };
    const __m512i a = pairs(rows[0], rows[1]);
    const __m512i b = pairs(rows[2], rows[3]);
    return AsF(_mm512_max_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b)));
  }

  // Two blocks in int8, one behind the other.
  static VITRINE_INLINE __m512i QuantizePair(const float* a, float a_inverse, const float* b,
                                             float b_inverse) {
    const auto whole = [](const float* x, float inverse) VITRINE_LAMBDA_INLINE {
      return _mm512_cvtps_epi32(Max(Mul(Load(x), Set(inverse)), Set(-127.0f)));
    };
    const __m512i words_a = _mm512_packs_epi32(whole(a, a_inverse), whole(a + 16, a_inverse));
    const __m512i words_b = _mm512_packs_epi32(whole(b, b_inverse), whole(b + 16, b_inverse));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(words_a, words_b));
  }

  static VITRINE_INLINE void StoreHalf(int8_t* p, __m256i x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x);
  }

  // Quarter k of the result: for each of 4 vectors, the sum of its quarter k.
  static VITRINE_INLINE I AddLanes(const __m512i* x) {
    const auto pairs = [](__m512i a, __m512i b) VITRINE_LAMBDA_INLINE {
      return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    };
    const __m512i a = pairs(x[0], x[1]);
    const __m512i b = pairs(x[2], x[3]);
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
  }

  // Lane r of the four goes to rows[r], whose fields follow each other.
  template <class Row>
  static VITRINE_INLINE void StoreFields(F scale, F scaled_sum, I minus8_sum, I low_sum,
                                         Row* const* rows) {
    static_assert(offsetof(Row, scaled_sum) == offsetof(Row, scale) + 4 &&
                  offsetof(Row, minus8_sum) == offsetof(Row, scale) + 8 &&
                  offsetof(Row, low_sum) == offsetof(Row, scale) + 12);
    const __m512i floats[2] = {_mm512_unpacklo_epi32(AsI(scale), AsI(scaled_sum)),
                               _mm512_unpackhi_epi32(AsI(scale), AsI(scaled_sum))};
    const __m512i integers[2] = {_mm512_unpacklo_epi32(minus8_sum, low_sum),
                                 _mm512_unpackhi_epi32(minus8_sum, low_sum)};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m512i fields = i % 2 == 0 ? _mm512_unpacklo_epi64(floats[i / 2], integers[i / 2])
                                        : _mm512_unpackhi_epi64(floats[i / 2], integers[i / 2]);
      StoreField(&rows[i]->scale, _mm512_castsi512_si128(fields));
      StoreField(&rows[4 + i]->scale, _mm512_extracti32x4_epi32(fields, 1));
      StoreField(&rows[8 + i]->scale, _mm512_extracti32x4_epi32(fields, 2));
      StoreField(&rows[12 + i]->scale, _mm512_extracti32x4_epi32(fields, 3));
    }
  }
  static VITRINE_INLINE void StoreField(float* p, __m128i x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), x);
  }
};

}  // namespace vitrine::cpu
