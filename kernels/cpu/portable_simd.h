// The vector vocabulary of simd.h in plain C++: slow, and the same bits on every machine.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/cpu/simd.h"
#include "kernels/dtype.h"

namespace vitrine::cpu {

struct Portable {
  static constexpr int kLanes = 16;
  static constexpr bool kDotWideIsCentred = false;
  static constexpr int kRowsInFlight = 1;
  static constexpr int kRegisterRows = 1;
  static constexpr int kFloatRows = 4;
  static constexpr int kAttentionRows = 2;
  static constexpr int kAttentionVectors = 1;

  using Panel = Portable;
  struct F {
    float lane[16];
  };
  struct I {
    int32_t lane[16];
  };
  struct Bytes {
    uint8_t byte[64];
  };
  struct Pairs {
    uint16_t half[32];
  };

  static VITRINE_INLINE F Zero() { return Set(0.0f); }
  static VITRINE_INLINE F Set(float x) {
    return Each([&](int) { return x; });
  }
  static VITRINE_INLINE F Load(const float* p) {
    F x;
    std::memcpy(&x, p, sizeof(x));
    return x;
  }
  static VITRINE_INLINE void Store(float* p, const F& x) { std::memcpy(p, &x, sizeof(x)); }
  static VITRINE_INLINE F LoadPartial(const float* p, int n) {
    return Each([&](int i) { return i < n ? p[i] : 0.0f; });
  }
  static VITRINE_INLINE void StorePartial(float* p, const F& x, int n) {
    for (int i = 0; i < n; ++i) p[i] = x.lane[i];
  }
  static VITRINE_INLINE F Add(const F& a, const F& b) {
    return Each([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  static VITRINE_INLINE F Sub(const F& a, const F& b) {
    return Each([&](int i) { return a.lane[i] - b.lane[i]; });
  }
  static VITRINE_INLINE F Mul(const F& a, const F& b) {
    return Each([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  static VITRINE_INLINE F Div(const F& a, const F& b) {
    return Each([&](int i) { return a.lane[i] / b.lane[i]; });
  }
  static VITRINE_INLINE F Fma(const F& a, const F& b, const F& c) {
    return Each([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
  }
  static VITRINE_INLINE F Max(const F& a, const F& b) {
    return Each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static VITRINE_INLINE F Min(const F& a, const F& b) {
    return Each([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
  }
  static VITRINE_INLINE F Abs(const F& x) {
    return Each([&](int i) { return std::fabs(x.lane[i]); });
  }
  static VITRINE_INLINE F SelectLess(const F& a, const F& b, const F& yes, const F& no) {
    return Each([&](int i) { return a.lane[i] < b.lane[i] ? yes.lane[i] : no.lane[i]; });
  }
  static VITRINE_INLINE F CopySign(const F& magnitude, const F& sign) {
    return Each([&](int i) { return std::copysign(magnitude.lane[i], sign.lane[i]); });
  }
  static VITRINE_INLINE F Round(const F& x) {
    return Each([&](int i) { return RoundOne(x.lane[i]); });
  }
  static VITRINE_INLINE F Power2(const F& x, const F& n) {
    return Each([&](int i) {
      if (!(n.lane[i] > -127.0f)) return n.lane[i] == n.lane[i] ? 0.0f : n.lane[i];
      const int exponent = static_cast<int>(n.lane[i]) + 127;
      return x.lane[i] * std::bit_cast<float>(static_cast<uint32_t>(exponent) << 23);
    });
  }
  static VITRINE_INLINE F ToFloat(const I& x) {
    return Each([&](int i) { return static_cast<float>(x.lane[i]); });
  }
  static VITRINE_INLINE float First(const F& x) { return x.lane[0]; }
  static VITRINE_INLINE float ReduceAdd(F x) {
    for (int step = 8; step > 0; step /= 2) {
      for (int i = 0; i < step; ++i) x.lane[i] += x.lane[i + step];
    }
    return x.lane[0];
  }
  static VITRINE_INLINE float ReduceMax(F x) {
    for (int step = 8; step > 0; step /= 2) {
      for (int i = 0; i < step; ++i) {
        x.lane[i] = x.lane[i] > x.lane[i + step] ? x.lane[i] : x.lane[i + step];
      }
    }
    return x.lane[0];
  }
  static VITRINE_INLINE float LargestMagnitude(const F& low, const F& high) {
    int32_t largest = 0;
    for (int i = 0; i < 16; ++i) {
      const int32_t a = std::bit_cast<int32_t>(low.lane[i]) & INT32_MAX;
      const int32_t b = std::bit_cast<int32_t>(high.lane[i]) & INT32_MAX;
      largest = a > largest ? a : largest;
      largest = b > largest ? b : largest;
    }
    return std::bit_cast<float>(largest);
  }
  static VITRINE_INLINE int32_t Quantize(const F& x, float inverse, int8_t* values) {
    int32_t sum = 0;
    for (int i = 0; i < 16; ++i) {
      const float scaled = x.lane[i] * inverse;
      const int32_t whole = static_cast<int32_t>(RoundOne(scaled > -127.0f ? scaled : -127.0f));
      values[i] = static_cast<int8_t>(whole);
      sum += whole;
    }
    return sum;
  }

  static VITRINE_INLINE I ZeroI() { return SetI(0); }
  static VITRINE_INLINE I SetI(int32_t x) {
    return EachI([&](int) { return x; });
  }
  static VITRINE_INLINE I AddI(const I& a, const I& b) {
    return EachI([&](int i) { return a.lane[i] + b.lane[i]; });
  }
  static VITRINE_INLINE I MulI(const I& a, const I& b) {
    return EachI([&](int i) { return a.lane[i] * b.lane[i]; });
  }
  template <int kBits>
  static VITRINE_INLINE I ShiftLeft(const I& x) {
    return EachI([&](int i) { return x.lane[i] * (1 << kBits); });
  }
  template <int kByte>
  static VITRINE_INLINE I ByteOf(const Bytes& x) {
    return EachI([&](int i) { return int32_t{x.byte[4 * i + kByte]}; });
  }
  static VITRINE_INLINE Bytes LoadBytes(const uint8_t* p) {
    Bytes x;
    std::memcpy(&x, p, sizeof(x));
    return x;
  }
  static VITRINE_INLINE Bytes LowNibbles(Bytes x) {
    for (uint8_t& byte : x.byte) byte &= 15;
    return x;
  }
  static VITRINE_INLINE Bytes HighNibbles(Bytes x) {
    for (uint8_t& byte : x.byte) byte = static_cast<uint8_t>(byte >> 4);
    return x;
  }
  static VITRINE_INLINE I Dot(const I& acc, const Bytes& weights, const int8_t* quad) {
    return EachI([&](int i) {
      const uint8_t* w = weights.byte + 4 * i;
      return acc.lane[i] + w[0] * quad[0] + w[1] * quad[1] + w[2] * quad[2] + w[3] * quad[3];
    });
  }
  static VITRINE_INLINE I DotWide(const I& acc, const Bytes& weights, const int8_t* quad) {
    return Dot(acc, weights, quad);
  }
  static VITRINE_INLINE F LoadF16(const uint8_t* p) {
    return Each([&](int i) { return FloatFromF16(Half(p, i)); });
  }
  static VITRINE_INLINE F LoadBf16(const uint8_t* p) {
    return Each([&](int i) { return FloatFromBf16(Half(p, i)); });
  }

  static VITRINE_INLINE Pairs LoadPairs(const void* p) {
    Pairs x;
    std::memcpy(&x, p, sizeof(x));
    return x;
  }
  static VITRINE_INLINE void StorePairs(void* p, const Pairs& x) { std::memcpy(p, &x, sizeof(x)); }
  static VITRINE_INLINE Pairs BroadcastPair(const void* p) {
    Pairs x;
    for (int i = 0; i < 16; ++i) std::memcpy(x.half + 2 * i, p, 4);
    return x;
  }
  static VITRINE_INLINE Pairs EvenOnly(Pairs x) {
    for (int i = 0; i < 16; ++i) x.half[2 * i + 1] = 0;
    return x;
  }
  static VITRINE_INLINE Pairs RoundPairs(const F& low, const F& high) {
    Pairs x;
    for (int i = 0; i < 16; ++i) {
      x.half[i] = RoundBf16(low.lane[i]);
      x.half[16 + i] = RoundBf16(high.lane[i]);
    }
    return x;
  }
  static VITRINE_INLINE F DotPairs(const F& acc, const Pairs& a, const Pairs& b) {
    return Each([&](int i) {
      const float odd =
          std::fma(FloatFromBf16(a.half[2 * i + 1]), FloatFromBf16(b.half[2 * i + 1]), acc.lane[i]);
      return std::fma(FloatFromBf16(a.half[2 * i]), FloatFromBf16(b.half[2 * i]), odd);
    });
  }
  static VITRINE_INLINE void StoreBf16(uint16_t* p, const F& x) {
    for (int i = 0; i < 16; ++i) p[i] = RoundBf16(x.lane[i]);
  }
  static VITRINE_INLINE void StoreBf16Strided(uint16_t* p, const F& x) {
    for (int i = 0; i < 16; ++i) p[2 * i] = RoundBf16(x.lane[i]);
  }

  static VITRINE_INLINE F SwapNeighbours(const F& x) {
    return Each([&](int i) { return x.lane[i ^ 1]; });
  }
  static VITRINE_INLINE F LoadTwice(const float* p) {
    return Each([&](int i) { return p[i / 2]; });
  }
  static VITRINE_INLINE F NegateEven(const F& x) {
    return Each([&](int i) { return i % 2 == 0 ? -x.lane[i] : x.lane[i]; });
  }
  static VITRINE_INLINE void FetchToL2(const void* p) { __builtin_prefetch(p, 0, 2); }

 private:
  template <class Function>
  static VITRINE_INLINE F Each(Function&& function) {
    F x;
    for (int i = 0; i < 16; ++i) x.lane[i] = function(i);
    return x;
  }
  template <class Function>
  static VITRINE_INLINE I EachI(Function&& function) {
    I x;
    for (int i = 0; i < 16; ++i) x.lane[i] = function(i);
    return x;
  }
  // To nearest, ties to even: adding 1.5 * 2^23 leaves no room for a fraction.
  static VITRINE_INLINE float RoundOne(float x) {
    constexpr float kNoFraction = 12582912.0f;
    return (x + kNoFraction) - kNoFraction;
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
