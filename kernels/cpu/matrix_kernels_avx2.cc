#include "kernels/cpu/matrix_kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "kernels/cpu/avx2_simd.h"
#include "kernels/cpu/matrix_kernels_simd.h"

namespace vitrine::cpu {

void FillAvx2MatrixKernels(KernelTable& table) { FillMatrixKernels<Avx2::Panel>(table); }

}  // namespace vitrine::cpu

#endif
