// The matrix kernels of all weight types for one instruction set.
#pragma once

#include "kernels/cpu/float_kernels_simd.h"
#include "kernels/cpu/pair_sum_kernels_simd.h"
#include "kernels/cpu/panel_kernels_simd.h"

namespace vitrine::cpu {

template <class P, template <class> class Format>
void FillQuantized(KernelTable& table) {
  if constexpr (P::kAddsInPairs) {
    FillPairedKernels<P, Format>(table);
  } else {
    FillIntegerKernels<P, Format>(table);
  }
  FillFloatKernels<P, QuantizedColumns<P, Format>>(table);
}

template <class P>
void FillMatrixKernels(KernelTable& table) {
  FillQuantized<P, Q4_0Format>(table);
  FillQuantized<P, Q4_1Format>(table);
  FillQuantized<P, Q5_0Format>(table);
  FillQuantized<P, Q5_1Format>(table);
  FillQuantized<P, Q8_0Format>(table);
  FillQuantized<P, Q2KFormat>(table);
  FillQuantized<P, Q3KFormat>(table);
  FillQuantized<P, Q4KFormat>(table);
  FillQuantized<P, Q5KFormat>(table);
  FillQuantized<P, Q6KFormat>(table);
  FillQuantized<P, Iq4NlFormat>(table);
  FillQuantized<P, Iq4XsFormat>(table);
  FillFloatKernels<P, F32Columns<P>>(table);
  FillFloatKernels<P, F16Columns<P>>(table);
  FillFloatKernels<P, Bf16Columns<P>>(table);
}

}  // namespace vitrine::cpu
