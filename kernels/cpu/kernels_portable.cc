#include "kernels/cpu/kernel_table_simd.h"
#include "kernels/cpu/portable_simd.h"

namespace vitrine::cpu {

const KernelTable* PortableKernels() {
  static constexpr KernelTable kTable = MakeKernelTable<Portable>("portable");
  return &kTable;
}

}  // namespace vitrine::cpu
