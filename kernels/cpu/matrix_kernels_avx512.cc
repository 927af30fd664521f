#include "kernels/cpu/matrix_kernels.h"

#if defined(__AVX512VNNI__) && defined(__AVX512BF16__)

#include "kernels/cpu/avx512_simd.h"
#include "kernels/cpu/matrix_kernels_simd.h"

namespace vitrine::cpu {

void FillAvx512MatrixKernels(KernelTable& table) { FillMatrixKernels<Avx512::Panel>(table); }

}  // namespace vitrine::cpu

#endif
