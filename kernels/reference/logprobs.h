#pragma once

#include "kernels/logprobs.h"

namespace vitrine::reference {

void Logprobs(const LogprobsArgs& args);

}  // namespace vitrine::reference
