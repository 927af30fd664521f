#pragma once

#include <cstddef>

#include "kernels/logprobs.h"

namespace vitrine::cpu {

// One row of Logprobs. Any thread; needs no memory but its stack (16 KiB).
LogprobsResult RowLogprobs(const LogprobsArgs& args, size_t row);

}  // namespace vitrine::cpu
