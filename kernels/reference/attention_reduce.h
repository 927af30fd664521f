#pragma once

#include "kernels/attention_reduce.h"

namespace vitrine::reference {

void AttentionReduce(const AttentionReduceArgs& args);

}  // namespace vitrine::reference
