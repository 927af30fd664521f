#pragma once

#include "kernels/activated_mat_mul.h"

namespace vitrine::reference {

void ActivatedMatMul(const ActivatedMatMulArgs& args);

}  // namespace vitrine::reference
