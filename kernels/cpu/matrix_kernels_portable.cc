#include "kernels/cpu/matrix_kernels.h"
#include "kernels/cpu/matrix_kernels_simd.h"
#include "kernels/cpu/portable_simd.h"

namespace vitrine::cpu {

void FillPortableMatrixKernels(KernelTable& table) { FillMatrixKernels<Portable::Panel>(table); }

}  // namespace vitrine::cpu
