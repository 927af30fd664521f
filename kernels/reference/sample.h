#pragma once

#include "kernels/sample.h"

namespace vitrine::reference {

void Sample(const SampleArgs& args);

}  // namespace vitrine::reference
