// Entry points of the files that compile the matrix kernels, one per instruction set.
#pragma once

#include "kernels/cpu/kernel_table.h"

namespace vitrine::cpu {

void FillAvx512MatrixKernels(KernelTable& table);
void FillAvx2MatrixKernels(KernelTable& table);
void FillPortableMatrixKernels(KernelTable& table);

}  // namespace vitrine::cpu
