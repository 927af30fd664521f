// The vector vocabulary of simd.h on AVX2 with FMA and F16C.
//
// A register holds 8 lanes. The matrix kernels take a panel as two halves of 8 outputs (Panel);
// everything else works on pairs of registers.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/simd.h"

namespace vitrine::cpu {

struct Avx2Panel {
  static constexpr int kLanes = 8;
  static constexpr bool kDotWideIsCentred = true;
  static constexpr bool kAddsInPairs = true;
  static constexpr int kFloatRows = 8;

  using F = __m256;
  using I = __m256i;
  using Bytes = __m256i;
  using Words = __m256i;

  static VITRINE_INLINE F Zero() { return _mm256_setzero_ps(); }
  static VITRINE_INLINE F Set(float x) { return _mm256_set1_ps(x); }
  static VITRINE_INLINE F Load(const float* p) { return _mm256_loadu_ps(p); }
  static VITRINE_INLINE void Store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static VITRINE_INLINE F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static VITRINE_INLINE F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static VITRINE_INLINE F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static VITRINE_INLINE F ToFloat(I x) { return _mm256_cvtepi32_ps(x); }

  static VITRINE_INLINE I ZeroI() { return _mm256_setzero_si256(); }
  static VITRINE_INLINE I SetI(int32_t x) { return _mm256_set1_epi32(x); }
  static VITRINE_INLINE I AddI(I a, I b) { return _mm256_add_epi32(a, b); }
  static VITRINE_INLINE I MulI(I a, I b) { return _mm256_mullo_epi32(a, b); }
  template <int kBits>
  static VITRINE_INLINE I ShiftLeft(I x) {
    return _mm256_slli_epi32(x, kBits);
  }
  static VITRINE_INLINE I AndI(I a, I b) { return _mm256_and_si256(a, b); }
  template <int kBits>
  static VITRINE_INLINE I ShiftRight(I x) {
    return _mm256_srli_epi32(x, kBits);
  }
  static VITRINE_INLINE I LoadU8(const uint8_t* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static VITRINE_INLINE I LoadI8(const uint8_t* p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  template <int kByte>
  static VITRINE_INLINE I ByteOf(Bytes x) {
    return _mm256_and_si256(_mm256_srli_epi32(x, 8 * kByte), _mm256_set1_epi32(255));
  }
  static VITRINE_INLINE Bytes LoadBytes(const uint8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static VITRINE_INLINE Bytes LowNibbles(Bytes x) {
    return _mm256_and_si256(x, _mm256_set1_epi8(15));
  }
  static VITRINE_INLINE Bytes HighNibbles(Bytes x) {
    return _mm256_and_si256(_mm256_srli_epi16(x, 4), _mm256_set1_epi8(15));
  }
  static VITRINE_INLINE Bytes Or(Bytes a, Bytes b) { return _mm256_or_si256(a, b); }
  template <int kFrom, int kMask, int kTo>
  static VITRINE_INLINE Bytes Field(Bytes x) {
    if constexpr (kFrom > kTo) x = _mm256_srli_epi16(x, kFrom - kTo);
    if constexpr (kFrom < kTo) x = _mm256_slli_epi16(x, kTo - kFrom);
    return _mm256_and_si256(x, _mm256_set1_epi8(kMask << kTo));
  }
  static VITRINE_INLINE Bytes Lookup(const uint8_t* table, Bytes index) {
    const __m128i values = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), index);
  }
  static VITRINE_INLINE Bytes BroadcastQuad(const int8_t* quad) {
    int32_t bits;
    std::memcpy(&bits, quad, 4);
    return _mm256_set1_epi32(bits);
  }
  // 16 sums of two products each.
  static VITRINE_INLINE Words MulPairs(Bytes weights, Bytes values) {
    return _mm256_maddubs_epi16(weights, values);
  }
  static VITRINE_INLINE Words AddWords(Words a, Words b) { return _mm256_add_epi16(a, b); }
  static VITRINE_INLINE Words SetWords(int16_t x) { return _mm256_set1_epi16(x); }
  // The two words of every lane times those of `factors`, added.
  static VITRINE_INLINE I Widen(Words x, Words factors) { return _mm256_madd_epi16(x, factors); }
  // The low word of every lane in both.
  static VITRINE_INLINE Words Twice(I x) {
    return _mm256_or_si256(_mm256_and_si256(x, _mm256_set1_epi32(0xffff)),
                           _mm256_slli_epi32(x, 16));
  }
  // Bytes minus 128, and what then is left of them without a sign.
  static VITRINE_INLINE Bytes Centred(Bytes x) {
    return _mm256_xor_si256(x, _mm256_set1_epi8(INT8_MIN));
  }
  static VITRINE_INLINE Bytes Magnitudes(Bytes x) { return _mm256_abs_epi8(x); }
  // The sign of the weights moves to the values. VPMADDUBSW saturates sums of two products at
  // 32,767: 2 * 128 * 127 is just below.
  static VITRINE_INLINE I DotSigned(I acc, Bytes magnitudes, Bytes weights, Bytes values) {
    const Words pairs = MulPairs(magnitudes, _mm256_sign_epi8(values, weights));
    return _mm256_add_epi32(acc, Widen(pairs, SetWords(1)));
  }
  static VITRINE_INLINE I DotWide(I acc, Bytes weights, const int8_t* quad) {
    const Bytes centred = Centred(weights);
    return DotSigned(acc, Magnitudes(centred), centred, BroadcastQuad(quad));
  }
  // The cheapest way to add a product to each of many sums, exact while 16 bits hold them.
  static VITRINE_INLINE I AddProducts(I acc, Bytes weights, Bytes values) {
    return AddWords(acc, MulPairs(weights, values));
  }
  // Hides where a value came from, so that equal computations are not merged.
  template <class Vector>
  static VITRINE_INLINE void Keep(Vector& x) {
    __asm__ volatile("" : "+x"(x));
  }
  static VITRINE_INLINE F LoadF16(const uint8_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static VITRINE_INLINE F LoadBf16(const uint8_t* p) {
    const __m256i wide =
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
};

struct Avx2 {
  // Sums of 5 rows x 16 keys take 10 registers, the keys 4, factors the last 2.
  static constexpr int kAttentionRows = 5;
  static constexpr int kAttentionVectors = 1;
  static constexpr bool kQuantizesTogether = false;

  using Panel = Avx2Panel;
  struct F {
    __m256 low;
    __m256 high;
  };
  struct Pairs {
    __m256i low;
    __m256i high;
  };
  // Held as floats, so that they need not be taken apart for every use.
  struct Factors {
    __m256 even;
    __m256 odd;
  };
  static constexpr int kFactorFloats = 2;

  static VITRINE_INLINE F Zero() { return Set(0.0f); }
  static VITRINE_INLINE F Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static VITRINE_INLINE F Load(const float* p) {
    return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
  }
  static VITRINE_INLINE void Store(float* p, F x) {
    _mm256_storeu_ps(p, x.low);
    _mm256_storeu_ps(p + 8, x.high);
  }
  static VITRINE_INLINE F LoadPartial(const float* p, int n) {
    return {_mm256_maskload_ps(p, FirstLanes(n)), _mm256_maskload_ps(p + 8, FirstLanes(n - 8))};
  }
  static VITRINE_INLINE void StorePartial(float* p, F x, int n) {
    _mm256_maskstore_ps(p, FirstLanes(n), x.low);
    _mm256_maskstore_ps(p + 8, FirstLanes(n - 8), x.high);
  }
  static VITRINE_INLINE F Add(F a, F b) {
    return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
  }
  static VITRINE_INLINE F Sub(F a, F b) {
    return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
  }
  static VITRINE_INLINE F Mul(F a, F b) {
    return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
  }
  static VITRINE_INLINE F Div(F a, F b) {
    return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
  }
  static VITRINE_INLINE F Fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static VITRINE_INLINE F Max(F a, F b) {
    return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
  }
  static VITRINE_INLINE F Min(F a, F b) {
    return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
  }
  static VITRINE_INLINE F Abs(F x) {
    const __m256 mask = AsF(_mm256_set1_epi32(INT32_MAX));
    return {_mm256_and_ps(x.low, mask), _mm256_and_ps(x.high, mask)};
  }
  static VITRINE_INLINE F SelectLess(F a, F b, F yes, F no) {
    return {_mm256_blendv_ps(no.low, yes.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
            _mm256_blendv_ps(no.high, yes.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
  }
  static VITRINE_INLINE F CopySign(F magnitude, F sign) {
    const __m256 bit = AsF(_mm256_set1_epi32(INT32_MIN));
    return {_mm256_or_ps(_mm256_andnot_ps(bit, magnitude.low), _mm256_and_ps(bit, sign.low)),
            _mm256_or_ps(_mm256_andnot_ps(bit, magnitude.high), _mm256_and_ps(bit, sign.high))};
  }
  static VITRINE_INLINE F Round(F x) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(x.low, kNearest), _mm256_round_ps(x.high, kNearest)};
  }
  static VITRINE_INLINE F Power2(F x, F n) {
    return {Power2(x.low, n.low), Power2(x.high, n.high)};
  }
  static VITRINE_INLINE F Power2Near(F x, F n) {
    return {_mm256_mul_ps(x.low, PowerOf2(n.low)), _mm256_mul_ps(x.high, PowerOf2(n.high))};
  }
  static VITRINE_INLINE float First(F x) { return _mm256_cvtss_f32(x.low); }
  static VITRINE_INLINE float ReduceAdd(F x) {
    const __m256 eight = _mm256_add_ps(x.low, x.high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static VITRINE_INLINE float ReduceMax(F x) {
    const __m256 eight = _mm256_max_ps(x.low, x.high);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }
  // Bit i: a[i] > b[i].
  static VITRINE_INLINE uint32_t LanesAbove(F a, F b) {
    const int low = _mm256_movemask_ps(_mm256_cmp_ps(a.low, b.low, _CMP_GT_OQ));
    const int high = _mm256_movemask_ps(_mm256_cmp_ps(a.high, b.high, _CMP_GT_OQ));
    return static_cast<uint32_t>(low | high << 8);
  }
  static VITRINE_INLINE int StorePlaces(uint32_t lanes, int32_t first, int32_t* places) {
    int count = 0;
    for (; lanes != 0; lanes &= lanes - 1) places[count++] = first + std::countr_zero(lanes);
    return count;
  }
  static VITRINE_INLINE float LargestMagnitude(F low, F high) {
    const F a = Abs(low);
    const F b = Abs(high);
    const __m256i eight = _mm256_max_epi32(_mm256_max_epi32(AsI(a.low), AsI(a.high)),
                                           _mm256_max_epi32(AsI(b.low), AsI(b.high)));
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xB1));
    return std::bit_cast<float>(_mm_cvtsi128_si32(four));
  }
  static VITRINE_INLINE int32_t Quantize(F x, float inverse, int8_t* values) {
    const F scaled = Max(Mul(x, Set(inverse)), Set(-127.0f));
    const __m256i low = _mm256_cvtps_epi32(scaled.low);
    const __m256i high = _mm256_cvtps_epi32(scaled.high);
    const __m128i low16 =
        _mm_packs_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    const __m128i high16 =
        _mm_packs_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(values), _mm_packs_epi16(low16, high16));
    const __m256i sums = _mm256_add_epi32(low, high);
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xB1));
    return _mm_cvtsi128_si32(four);
  }

  static VITRINE_INLINE Pairs LoadPairs(const void* p) {
    const auto* words = static_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(words), _mm256_loadu_si256(words + 1)};
  }
  static VITRINE_INLINE Factors BroadcastFactors(const float* p) {
    return {_mm256_broadcast_ss(p), _mm256_broadcast_ss(p + 1)};
  }
  static VITRINE_INLINE void StoreFactors(float* p, F x) {
    _mm256_storeu_ps(p, AsF(_mm256_slli_epi32(RoundBf16(x.low), 16)));
    _mm256_storeu_ps(p + 8, AsF(_mm256_slli_epi32(RoundBf16(x.high), 16)));
  }
  static VITRINE_INLINE F AddFactors(F sum, F low, F high, float* p) {
    return {AddFactors(sum.low, low.low, low.high, p),
            AddFactors(sum.high, high.low, high.high, p + 16)};
  }
  static VITRINE_INLINE Pairs EvenOnly(Pairs x) {
    const __m256i mask = _mm256_set1_epi32(0xffff);
    return {_mm256_and_si256(x.low, mask), _mm256_and_si256(x.high, mask)};
  }
  static VITRINE_INLINE F DotPairs(F acc, Pairs a, Factors b) {
    return {DotPairs(acc.low, a.low, b), DotPairs(acc.high, a.high, b)};
  }
  static VITRINE_INLINE void StoreBf16(uint16_t* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), RoundBf16(x.low, x.high));
  }
  static VITRINE_INLINE void StoreBf16Strided(uint16_t* p, F x) {
    alignas(32) uint16_t halves[16];
    StoreBf16(halves, x);
    for (int i = 0; i < 16; ++i) p[2 * i] = halves[i];
  }

  static VITRINE_INLINE F SwapNeighbours(F x) {
    return {_mm256_permute_ps(x.low, 0xB1), _mm256_permute_ps(x.high, 0xB1)};
  }
  static VITRINE_INLINE F LoadTwice(const float* p) {
    const __m256i low = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    const __m256i high = _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7);
    const __m256 x = _mm256_loadu_ps(p);
    return {_mm256_permutevar8x32_ps(x, low), _mm256_permutevar8x32_ps(x, high)};
  }
  static VITRINE_INLINE F NegateEven(F x) {
    const __m256 bits = AsF(_mm256_set1_epi64x(int64_t{0x80000000}));
    return {_mm256_xor_ps(x.low, bits), _mm256_xor_ps(x.high, bits)};
  }
  static VITRINE_INLINE void FetchToL2(const void* p) {
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
  }
  // A line that will be written and that another core may own.
  static VITRINE_INLINE void FetchForWriting(const void* p) { __builtin_prefetch(p, 1); }

 private:
  static VITRINE_INLINE __m256i AsI(__m256 x) { return _mm256_castps_si256(x); }
  static VITRINE_INLINE __m256 AsF(__m256i x) { return _mm256_castsi256_ps(x); }
  static VITRINE_INLINE __m256i FirstLanes(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  // 2^n, for -127 zero.
  static VITRINE_INLINE __m256 PowerOf2(__m256 n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return AsF(_mm256_slli_epi32(exponent, 23));
  }
  static VITRINE_INLINE __m256 Power2(__m256 x, __m256 n) {
    const __m256 lowest = _mm256_set1_ps(-127.0f);
    const __m256 product = _mm256_mul_ps(x, PowerOf2(_mm256_max_ps(n, lowest)));
    return _mm256_andnot_ps(_mm256_cmp_ps(n, lowest, _CMP_LE_OQ), product);
  }
  // Rounds 16 floats as VCVTNEPS2BF16 does: to nearest even, denormal numbers to zero.
  static VITRINE_INLINE __m256i RoundBf16(__m256 low, __m256 high) {
    const __m256i packed = _mm256_packus_epi32(RoundBf16(low), RoundBf16(high));
    return _mm256_permute4x64_epi64(packed, 0xD8);
  }
  static VITRINE_INLINE __m256i RoundBf16(__m256 x) {
    const __m256i bits = AsI(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
    const __m256i is_nan = AsI(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    rounded = _mm256_blendv_epi8(rounded, quiet, is_nan);
    const __m256i exponent = _mm256_and_si256(bits, _mm256_set1_epi32(0x7f800000));
    const __m256i is_tiny = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
    const __m256i zero = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x8000));
    return _mm256_blendv_epi8(rounded, zero, is_tiny);
  }
  static VITRINE_INLINE __m256 DotPairs(__m256 acc, __m256i a, Factors b) {
    const __m256 odd = AsF(_mm256_and_si256(a, _mm256_set1_epi32(INT32_MIN >> 15)));
    return _mm256_fmadd_ps(AsF(_mm256_slli_epi32(a, 16)), b.even, _mm256_fmadd_ps(odd, b.odd, acc));
  }
  static VITRINE_INLINE __m256 AddFactors(__m256 sum, __m256 first, __m256 second, float* p) {
    first = RoundWeights(first);
    second = RoundWeights(second);
    _mm256_storeu_ps(p, first);
    _mm256_storeu_ps(p + 8, second);
    // Numbers 2i + 1, then 2i, to lane i.
    return _mm256_add_ps(_mm256_add_ps(sum, InOrder(_mm256_shuffle_ps(first, second, 0xDD))),
                         InOrder(_mm256_shuffle_ps(first, second, 0x88)));
  }
  // To bf16, as RoundBf16: weights are not negative, no denormal numbers, and the payload of a NaN
  // came from a bf16 number or from arithmetic, so that adding does not carry out of it.
  static VITRINE_INLINE __m256 RoundWeights(__m256 x) {
    const __m256i bits = AsI(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i upper = _mm256_set1_epi32(INT32_MIN >> 15);
    return AsF(_mm256_and_si256(_mm256_add_epi32(bits, bias), upper));
  }
  static VITRINE_INLINE __m256 InOrder(__m256 x) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xD8));
  }
};

}  // namespace vitrine::cpu
