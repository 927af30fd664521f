#pragma once

#include "kernels/attention_reduce.h"
#include "kernels/cpu/kernel_table.h"

namespace vitrine::cpu {

// Reduces one row of args.rows; rows are independent of each other.
void ReduceAttentionRow(const KernelTable& kernels, const AttentionReduceArgs& args, size_t row);

}  // namespace vitrine::cpu
