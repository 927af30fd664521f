#pragma once

#include "kernels/rms_norm_add.h"

namespace vitrine::reference {

void RmsNormAdd(const RmsNormAddArgs& args);

}  // namespace vitrine::reference
