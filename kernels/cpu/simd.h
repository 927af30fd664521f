// What the instruction sets have in common; AMX is AVX-512 with other matrix kernels, and AVX-VNNI
// is AVX2.
//
// Kernels are templates over a vocabulary of vector operations: Avx512, Avx2 or Portable, one
// struct of static functions each, in a header of its own. The vocabulary has 16 lanes of f32 or
// int32 whatever the registers hold; Panel, for the matrix kernels, is the same with the number of
// lanes that is natural (16 or 8). Every operation is defined to the last bit, so a kernel gives
// the same result on all of them:
//
//   F, I         16 lanes of f32 and int32; arithmetic is IEEE with denormals as zero
//   Max(a, b)    a > b ? a : b; Min likewise
//   Round        to nearest, ties to even, |x| < 2^22
//   Power2(x, n) x * 2^n for whole n <= 127; 0 for n < -126
//   Power2Near(x, n)  the same for x = 1 or 0.7 < x < 1.5 and -127 <= n; a result below 2^-126 may
//                be a denormal number, which counts as zero wherever it is used
//   ReduceAdd    ((lane i + i+8) + (i+4)) + (i+2)) + (i+1)
//   Pairs        16 lanes of two bf16
//   Factors      two bf16 for all lanes, in the form that DotPairs wants: it adds the odd product
//                first, then the even one, each with one rounding, as VDPBF16PS does. In memory
//                they take kFactorFloats floats. StoreFactors rounds 16 numbers; AddFactors rounds
//                32 that are not negative, and adds them to a sum, lane i taking 2i + 1 and 2i
//   Dot          acc + sum of 4 products u8 * s8 per lane, for weights up to 128
//   DotWide      the same for any u8 weight; with kDotWideIsCentred 128 is subtracted from weights
//   kAddsInPairs there is no Dot; pair_sum_kernels_simd.h says what there is instead
#pragma once

#define VITRINE_INLINE inline __attribute__((always_inline))
#define VITRINE_LAMBDA_INLINE __attribute__((always_inline))

namespace vitrine::cpu {

inline constexpr int kPanelRows = 16;     // Outputs of a panel: one per lane.
inline constexpr int kTileRows = 16;      // Rows of the batch that pass by one decoded block.
inline constexpr int kBlockColumns = 32;  // Columns of a decoded block.

}  // namespace vitrine::cpu
