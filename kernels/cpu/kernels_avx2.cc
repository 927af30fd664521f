#include "kernels/cpu/kernel_table.h"

namespace vitrine::cpu {

const KernelTable* Avx2Kernels() { return nullptr; }

}  // namespace vitrine::cpu
