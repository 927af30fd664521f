#pragma once

#include "kernels/layer_norm.h"

namespace vitrine::reference {

void LayerNorm(const LayerNormArgs& args);

}  // namespace vitrine::reference
