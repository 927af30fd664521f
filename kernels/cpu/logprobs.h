#pragma once

#include <cstddef>

#include "kernels/logprobs.h"

namespace vitrine::cpu {

// The result of args.rows[index]. Any thread; needs no memory but its stack (16 KiB).
LogprobsResult RowLogprobs(const LogprobsArgs& args, size_t index);

}  // namespace vitrine::cpu
