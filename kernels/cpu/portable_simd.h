// The vector vocabulary of simd.h in plain C++: slow, and the same bits on every machine.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/simd.h"
#include "kernels/dtype.h"

namespace vitrine::cpu {

struct Portable {
  static constexpr int kLanes = 16;
  static constexpr bool kDotWideIsCentred = false;
  static constexpr bool kAddsInPairs = false;
  static constexpr int kRowsInFlight = 1;
  static constexpr int kRegisterRows = 1;
  static constexpr bool kTakesTwoPanels = false;
  static constexpr int kFloatRows = 4;
  static constexpr int kAttentionRows = 2;
  static constexpr int kAttentionVectors = 1;
  static constexpr bool kQuantizesTogether = false;

  using Panel = Portable;
  // Vectors of the compiler: it knows how to split them into what the machine has.
  using F = float __attribute__((vector_size(64)));
  using I = int32_t __attribute__((vector_size(64)));
  using U = uint32_t __attribute__((vector_size(64)));
  using Bytes = uint8_t __attribute__((vector_size(64)));
  struct Pairs {
    U bits;  // The second bf16 of a pair is the upper half.
  };
  using Factors = Pairs;
  static constexpr int kFactorFloats = 1;

  static VITRINE_INLINE F Zero() { return F{}; }
  static VITRINE_INLINE F Set(float x) { return F{} + x; }
  static VITRINE_INLINE F Load(const float* p) { return LoadAs<F>(p); }
  static VITRINE_INLINE void Store(float* p, F x) { std::memcpy(p, &x, sizeof(x)); }
  static VITRINE_INLINE F LoadPartial(const float* p, int n) {
    F x = {};
    std::memcpy(&x, p, sizeof(float) * static_cast<size_t>(n));
    return x;
  }
  static VITRINE_INLINE void StorePartial(float* p, F x, int n) {
    std::memcpy(p, &x, sizeof(float) * static_cast<size_t>(n));
  }
  static VITRINE_INLINE F Add(F a, F b) { return a + b; }
  static VITRINE_INLINE F Sub(F a, F b) { return a - b; }
  static VITRINE_INLINE F Mul(F a, F b) { return a * b; }
  static VITRINE_INLINE F Div(F a, F b) { return a / b; }
  static VITRINE_INLINE F Fma(F a, F b, F c) {
#pragma GCC unroll 1
    for (int i = 0; i < 16; ++i) c[i] = std::fma(a[i], b[i], c[i]);
    return c;
  }
  static VITRINE_INLINE F Max(F a, F b) { return Blend(a > b, a, b); }
  static VITRINE_INLINE F Min(F a, F b) { return Blend(a < b, a, b); }
  static VITRINE_INLINE F Abs(F x) { return AsF(AsI(x) & INT32_MAX); }
  static VITRINE_INLINE F SelectLess(F a, F b, F yes, F no) { return Blend(a < b, yes, no); }
  static VITRINE_INLINE F CopySign(F magnitude, F sign) {
    return AsF((AsI(magnitude) & INT32_MAX) | (AsI(sign) & INT32_MIN));
  }
  // Adding 1.5 * 2^23 leaves no room for a fraction.
  static VITRINE_INLINE F Round(F x) {
    constexpr float kNoFraction = 12582912.0f;
    return (x + kNoFraction) - kNoFraction;
  }
  static VITRINE_INLINE F Power2(F x, F n) {
    const F lowest = Set(-127.0f);
    const I exponent = __builtin_convertvector(Max(n, lowest), I) + 127;
    const F product = x * AsF(exponent << 23);
    return Blend(n <= lowest, F{}, product);
  }
  static VITRINE_INLINE F Power2Near(F x, F n) { return Power2(x, n); }
  static VITRINE_INLINE F ToFloat(I x) { return __builtin_convertvector(x, F); }
  static VITRINE_INLINE float First(F x) { return x[0]; }
  static VITRINE_INLINE float ReduceAdd(F x) {
    for (int step = 8; step > 0; step /= 2) {
      for (int i = 0; i < step; ++i) x[i] += x[i + step];
    }
    return x[0];
  }
  static VITRINE_INLINE float ReduceMax(F x) {
    float largest = x[0];
    for (int i = 1; i < 16; ++i) largest = x[i] > largest ? x[i] : largest;
    return largest;
  }
  // Bit i: a[i] > b[i].
  static VITRINE_INLINE uint32_t LanesAbove(F a, F b) {
    uint32_t lanes = 0;
    for (int i = 0; i < 16; ++i) lanes |= (a[i] > b[i] ? 1u : 0u) << i;
    return lanes;
  }
  static VITRINE_INLINE int StorePlaces(uint32_t lanes, int32_t first, int32_t* places) {
    int count = 0;
    for (; lanes != 0; lanes &= lanes - 1) places[count++] = first + std::countr_zero(lanes);
    return count;
  }
  static VITRINE_INLINE float LargestMagnitude(F low, F high) {
    const I a = AsI(low) & INT32_MAX;
    const I b = AsI(high) & INT32_MAX;
    int32_t largest = 0;
    for (int i = 0; i < 16; ++i) {
      largest = a[i] > largest ? a[i] : largest;
      largest = b[i] > largest ? b[i] : largest;
    }
    return std::bit_cast<float>(largest);
  }
  static VITRINE_INLINE int32_t Quantize(F x, float inverse, int8_t* values) {
    const I whole = __builtin_convertvector(Round(Max(x * inverse, Set(-127.0f))), I);
    int32_t sum = 0;
    for (int i = 0; i < 16; ++i) {
      values[i] = static_cast<int8_t>(whole[i]);
      sum += whole[i];
    }
    return sum;
  }

  static VITRINE_INLINE I ZeroI() { return I{}; }
  static VITRINE_INLINE I SetI(int32_t x) { return I{} + x; }
  static VITRINE_INLINE I AddI(I a, I b) { return a + b; }
  static VITRINE_INLINE I MulI(I a, I b) { return a * b; }
  template <int kBits>
  static VITRINE_INLINE I ShiftLeft(I x) {
    return x << kBits;
  }
  static VITRINE_INLINE I AndI(I a, I b) { return a & b; }
  template <int kBits>
  static VITRINE_INLINE I ShiftRight(I x) {
    return x >> kBits;
  }
  static VITRINE_INLINE I LoadU8(const uint8_t* p) {
    I x = {};
    for (int i = 0; i < 16; ++i) x[i] = p[i];
    return x;
  }
  static VITRINE_INLINE I LoadI8(const uint8_t* p) {
    I x = {};
    for (int i = 0; i < 16; ++i) x[i] = (int32_t{p[i]} ^ 0x80) - 0x80;  // Extends the sign.
    return x;
  }
  template <int kByte>
  static VITRINE_INLINE I ByteOf(Bytes x) {
    return (reinterpret_cast<I>(x) >> (8 * kByte)) & 255;
  }
  static VITRINE_INLINE Bytes LoadBytes(const uint8_t* p) { return LoadAs<Bytes>(p); }
  static VITRINE_INLINE Bytes LowNibbles(Bytes x) { return x & 15; }
  static VITRINE_INLINE Bytes HighNibbles(Bytes x) { return x >> 4; }
  static VITRINE_INLINE Bytes Or(Bytes a, Bytes b) { return a | b; }
  template <int kFrom, int kMask, int kTo>
  static VITRINE_INLINE Bytes Field(Bytes x) {
    constexpr uint8_t kBits = kMask;
    return ((x >> kFrom) & kBits) << kTo;
  }
  static VITRINE_INLINE Bytes Lookup(const uint8_t* table, Bytes index) {
    for (int i = 0; i < 64; ++i) index[i] = table[index[i]];
    return index;
  }
  static VITRINE_INLINE I Dot(I acc, Bytes weights, const int8_t* quad) {
    return acc + ByteOf<0>(weights) * int32_t{quad[0]} + ByteOf<1>(weights) * int32_t{quad[1]} +
           ByteOf<2>(weights) * int32_t{quad[2]} + ByteOf<3>(weights) * int32_t{quad[3]};
  }
  static VITRINE_INLINE I DotWide(I acc, Bytes weights, const int8_t* quad) {
    return Dot(acc, weights, quad);
  }
  // The cheapest way to add a product to each of many sums.
  static VITRINE_INLINE I AddProducts(I acc, Bytes weights, Bytes values) {
    return Dot(acc, weights, reinterpret_cast<const int8_t*>(&values));
  }
  // Hides where a value came from, so that equal computations are not merged.
  template <class Vector>
  static VITRINE_INLINE void Keep(Vector& x) {
    __asm__ volatile("" : "+m"(x));
  }
  static VITRINE_INLINE F LoadF16(const uint8_t* p) {
    F x;
    for (int i = 0; i < 16; ++i) x[i] = FloatFromF16(Half(p, i));
    return x;
  }
  static VITRINE_INLINE F LoadBf16(const uint8_t* p) {
    F x;
    for (int i = 0; i < 16; ++i) x[i] = FloatFromBf16(Half(p, i));
    return x;
  }

  static VITRINE_INLINE Pairs LoadPairs(const void* p) { return {LoadAs<U>(p)}; }
  static VITRINE_INLINE Factors BroadcastFactors(const float* p) {
    uint32_t bits;
    std::memcpy(&bits, p, 4);
    return {U{} + bits};
  }
  static VITRINE_INLINE void StoreFactors(float* p, F x) {
    uint16_t halves[16];
    StoreBf16(halves, x);
    std::memcpy(p, halves, sizeof(halves));
  }
  static VITRINE_INLINE F AddFactors(F sum, F low, F high, float* p) {
    StoreFactors(p, low);
    StoreFactors(p + 8, high);
    return DotPairs(sum, LoadPairs(p), {U{} + 0x3f803f80u});
  }
  static VITRINE_INLINE Pairs EvenOnly(Pairs x) { return {x.bits & 0xffffu}; }
  static VITRINE_INLINE F DotPairs(F acc, Pairs a, Factors b) {
    const F odd = Fma(AsF(a.bits & 0xffff0000u), AsF(b.bits & 0xffff0000u), acc);
    return Fma(AsF(a.bits << 16), AsF(b.bits << 16), odd);
  }
  static VITRINE_INLINE void StoreBf16(uint16_t* p, F x) {
    for (int i = 0; i < 16; ++i) p[i] = RoundBf16(x[i]);
  }
  static VITRINE_INLINE void StoreBf16Strided(uint16_t* p, F x) {
    for (int i = 0; i < 16; ++i) p[2 * i] = RoundBf16(x[i]);
  }

  static VITRINE_INLINE F SwapNeighbours(F x) {
    F y;
    for (int i = 0; i < 16; ++i) y[i] = x[i ^ 1];
    return y;
  }
  static VITRINE_INLINE F LoadTwice(const float* p) {
    F x;
    for (int i = 0; i < 16; ++i) x[i] = p[i / 2];
    return x;
  }
  static VITRINE_INLINE F NegateEven(F x) {
    for (int i = 0; i < 16; i += 2) x[i] = -x[i];
    return x;
  }
  static VITRINE_INLINE void FetchToL2(const void* p) { __builtin_prefetch(p, 0, 2); }
  static VITRINE_INLINE void FetchForWriting(const void* p) { __builtin_prefetch(p, 1); }

 private:
  template <class Vector>
  static VITRINE_INLINE Vector LoadAs(const void* p) {
    Vector x;
    std::memcpy(&x, p, sizeof(x));
    return x;
  }
  static VITRINE_INLINE I AsI(F x) { return reinterpret_cast<I>(x); }
  template <class Integers>
  static VITRINE_INLINE F AsF(Integers x) {
    return reinterpret_cast<F>(x);
  }
  static VITRINE_INLINE F Blend(I mask, F yes, F no) {
    return AsF((AsI(yes) & mask) | (AsI(no) & ~mask));
  }
  // Denormal numbers become zero, as VCVTNEPS2BF16 does.
  static VITRINE_INLINE uint16_t RoundBf16(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    if ((bits & 0x7f800000u) == 0) return static_cast<uint16_t>((bits >> 16) & 0x8000u);
    return Bf16FromFloat(x);
  }
  static VITRINE_INLINE uint16_t Half(const uint8_t* p, int index) {
    uint16_t bits;
    std::memcpy(&bits, p + 2 * index, 2);
    return bits;
  }
};

}  // namespace vitrine::cpu
