#pragma once

#include "kernels/adjust_logits.h"

namespace vitrine::reference {

void AdjustLogits(const AdjustLogitsArgs& args);

}  // namespace vitrine::reference
