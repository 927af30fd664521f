#include "kernels/cpu/kernel_table_simd.h"
#include "kernels/cpu/matrix_kernels.h"
#include "kernels/cpu/portable_simd.h"

namespace vitrine::cpu {

const KernelTable* PortableKernels() {
  static const KernelTable table = MakeKernelTable<Portable>("portable", FillPortableMatrixKernels);
  return &table;
}

}  // namespace vitrine::cpu
