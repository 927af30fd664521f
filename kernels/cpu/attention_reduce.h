#pragma once

#include "kernels/attention_reduce.h"

namespace vitrine::cpu {

// Reduces one row of args.rows; rows are independent of each other. Plain code: a reader asks for a
// few rows, and sums in f64 need no vectors to keep up with memory.
void ReduceAttentionRow(const AttentionReduceArgs& args, size_t row);

}  // namespace vitrine::cpu
