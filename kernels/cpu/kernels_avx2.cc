#include "kernels/cpu/kernel_table.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "kernels/cpu/avx2_simd.h"
#include "kernels/cpu/kernel_table_simd.h"

namespace vitrine::cpu {

const KernelTable* Avx2Kernels() {
  static constexpr KernelTable kTable = MakeKernelTable<Avx2>("avx2");
  return &kTable;
}

}  // namespace vitrine::cpu

#else

namespace vitrine::cpu {

const KernelTable* Avx2Kernels() { return nullptr; }

}  // namespace vitrine::cpu

#endif
