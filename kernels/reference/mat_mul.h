#pragma once

#include "kernels/mat_mul.h"

namespace vitrine::reference {

void MatMul(const MatMulArgs& args);

}  // namespace vitrine::reference
