#pragma once

#include "kernels/rms_norm.h"

namespace vitrine::reference {

void RmsNorm(const RmsNormArgs& args);

}  // namespace vitrine::reference
