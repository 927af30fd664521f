#include "kernels/cpu/kernel_table.h"

#if defined(__AVX512VNNI__) && defined(__AVX512BF16__)

#include "kernels/cpu/avx512_simd.h"
#include "kernels/cpu/kernel_table_simd.h"
#include "kernels/cpu/matrix_kernels.h"

namespace vitrine::cpu {

const KernelTable* Avx512Kernels() {
  static const KernelTable table = MakeKernelTable<Avx512>("avx512", FillAvx512MatrixKernels);
  return &table;
}

}  // namespace vitrine::cpu

#else

namespace vitrine::cpu {

const KernelTable* Avx512Kernels() { return nullptr; }

}  // namespace vitrine::cpu

#endif
