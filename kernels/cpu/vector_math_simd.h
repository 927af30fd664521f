// Functions of 16 floats. Plain polynomial code, the same for every caller and instruction set, so
// that a value never depends on which kernel computed it.
#pragma once

#include "kernels/cpu/simd.h"

namespace vitrine::cpu {

inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLn2 = 0.693147181f;

// 2^x with a relative error below 3e-7; exactly 1 at 0 and exactly 0 below -127. x <= 127.
template <class S>
VITRINE_INLINE typename S::F Exp2(typename S::F x) {
  x = S::Max(S::Set(-127.0f), x);  // NaN stays NaN: it is the second operand.
  const auto whole = S::Round(x);
  const auto part = S::Sub(x, whole);
  auto sum = S::Set(1.5403530e-4f);
  sum = S::Fma(sum, part, S::Set(1.3333558e-3f));
  sum = S::Fma(sum, part, S::Set(9.6181291e-3f));
  sum = S::Fma(sum, part, S::Set(5.5504109e-2f));
  sum = S::Fma(sum, part, S::Set(2.4022651e-1f));
  sum = S::Fma(sum, part, S::Set(6.9314718e-1f));
  sum = S::Fma(sum, part, S::Set(1.0f));
  return S::Power2Near(sum, whole);
}

// 2^x for weights that are rounded to bf16 afterwards: the relative error of 2.1e-4 is a tenth of
// that rounding. Exactly 0 for -inf and everything below -127.
template <class S>
VITRINE_INLINE typename S::F Exp2ForBf16(typename S::F x) {
  x = S::Max(S::Set(-127.0f), x);  // NaN stays NaN: it is the second operand.
  const auto whole = S::Round(x);
  const auto part = S::Sub(x, whole);
  auto sum = S::Set(5.5838341e-2f);
  sum = S::Fma(sum, part, S::Set(2.4203593e-1f));
  sum = S::Fma(sum, part, S::Set(6.9313673e-1f));
  sum = S::Fma(sum, part, S::Set(1.0f));
  return S::Power2Near(sum, whole);
}

// x / (1 + e^-(slope x))
template <class S>
VITRINE_INLINE typename S::F XTimesSigmoid(typename S::F x, typename S::F slope_x) {
  // 2^126 keeps the denominator finite; the quotient is 0 long before that.
  const auto exponent = S::Min(S::Mul(slope_x, S::Set(-kLog2E)), S::Set(126.0f));
  return S::Div(x, S::Add(S::Set(1.0f), Exp2<S>(exponent)));
}

// tanh with a relative error below 3e-7.
template <class S>
VITRINE_INLINE typename S::F Tanh(typename S::F x) {
  const auto one = S::Set(1.0f);
  // 1 - 2 / (e^2|x| + 1), and |x| capped where it is 1 to the last bit.
  const auto magnitude = S::Min(S::Set(16.0f), S::Abs(x));
  const auto exponential = Exp2<S>(S::Mul(magnitude, S::Set(2.0f * kLog2E)));
  const auto large = S::Sub(one, S::Div(S::Set(2.0f), S::Add(exponential, one)));
  // Near 0 that cancels; an odd polynomial does not (minimax on [0, 0.6], error 3e-9).
  const auto square = S::Mul(magnitude, magnitude);
  auto sum = S::Set(-5.85216862e-3f);
  sum = S::Fma(sum, square, S::Set(2.07536289e-2f));
  sum = S::Fma(sum, square, S::Set(-5.37687047e-2f));
  sum = S::Fma(sum, square, S::Set(1.3331689e-1f));
  sum = S::Fma(sum, square, S::Set(-3.33332833e-1f));
  sum = S::Fma(sum, square, one);
  const auto small = S::Mul(sum, magnitude);
  return S::CopySign(S::SelectLess(magnitude, S::Set(0.6f), small, large), x);
}

template <class S>
VITRINE_INLINE typename S::F Silu(typename S::F x) {
  return XTimesSigmoid<S>(x, x);
}

// x/2 (1 + tanh(u)) = x / (1 + e^-2u)
template <class S>
VITRINE_INLINE typename S::F GeluTanh(typename S::F x) {
  constexpr float kTwiceSqrt2OverPi = 1.59576912f;
  const auto cubic = S::Fma(S::Mul(S::Mul(x, x), x), S::Set(0.044715f), x);
  return XTimesSigmoid<S>(x, S::Mul(cubic, S::Set(kTwiceSqrt2OverPi)));
}

// x/2 erfc(-x / sqrt(2)), with erfc(z) = e^(-z^2) t P(t), t = 1 / (1 + z/2) for z >= 0 (minimax,
// relative error 5e-8).
template <class S>
VITRINE_INLINE typename S::F GeluErf(typename S::F x) {
  const auto z = S::Mul(S::Abs(x), S::Set(0.707106781f));
  const auto one = S::Set(1.0f);
  const auto t = S::Div(one, S::Fma(z, S::Set(0.5f), one));
  auto sum = S::Set(-5.8800461e-2f);
  sum = S::Fma(sum, t, S::Set(2.83258596e-1f));
  sum = S::Fma(sum, t, S::Set(-4.84459132e-1f));
  sum = S::Fma(sum, t, S::Set(2.7491171e-1f));
  sum = S::Fma(sum, t, S::Set(-2.44359955e-2f));
  sum = S::Fma(sum, t, S::Set(2.01752493e-1f));
  sum = S::Fma(sum, t, S::Set(2.43342276e-1f));
  sum = S::Fma(sum, t, S::Set(2.82342137e-1f));
  sum = S::Fma(sum, t, S::Set(2.82088336e-1f));
  const auto gauss = Exp2<S>(S::Mul(S::Mul(z, z), S::Set(-kLog2E)));
  const auto tail = S::Mul(S::Mul(gauss, S::Mul(sum, t)), S::Set(0.5f));
  return S::Mul(x, S::SelectLess(x, S::Zero(), tail, S::Sub(one, tail)));
}

}  // namespace vitrine::cpu
