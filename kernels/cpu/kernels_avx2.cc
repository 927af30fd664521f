#include "kernels/cpu/kernel_table.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "kernels/cpu/avx2_simd.h"
#include "kernels/cpu/kernel_table_simd.h"
#include "kernels/cpu/matrix_kernels.h"

namespace vitrine::cpu {

const KernelTable* Avx2Kernels() {
  static const KernelTable table = MakeKernelTable<Avx2>("avx2", FillAvx2MatrixKernels);
  return &table;
}

}  // namespace vitrine::cpu

#else

namespace vitrine::cpu {

const KernelTable* Avx2Kernels() { return nullptr; }

}  // namespace vitrine::cpu

#endif
