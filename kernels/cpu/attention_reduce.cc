#include "kernels/cpu/attention_reduce.h"

#include <algorithm>
#include <vector>

namespace vitrine::cpu {
namespace {

// Number `m` of `members` at values[m * stride] as one.
float Combine(const AttentionReduceArgs& args, const float* values, int64_t stride) {
  if (args.members == 1) return *values;
  double sum = 0;
  float largest = *values;
  for (int m = 0; m < args.members; ++m) {
    sum += static_cast<double>(values[m * stride]);
    largest = std::max(largest, values[m * stride]);
  }
  return args.combine == AttentionCombine::kMax
             ? largest
             : static_cast<float>(sum / static_cast<double>(args.members));
}

}  // namespace

void ReduceAttentionRow(const KernelTable& kernels, const AttentionReduceArgs& args, size_t row) {
  const auto columns = static_cast<size_t>(args.key_columns);
  const float* input = args.input.data() + row * static_cast<size_t>(args.members) * columns;
  const float* combined = input;
  if (args.members > 1 || !args.combined.empty()) {
    // Grows to the longest row that a worker has reduced.
    static thread_local std::vector<float> scratch;
    if (args.combined.empty()) scratch.resize(std::max(scratch.size(), columns));
    float* output = args.combined.empty() ? scratch.data() : args.combined.data() + row * columns;
    for (size_t key = 0; key < columns; ++key) {
      output[key] = Combine(args, input + key, args.key_columns);
    }
    combined = output;
  }
  const float log_sum_exp =
      args.stats.empty()
          ? 0.0f
          : Combine(args, args.log_sum_exp.data() + static_cast<int64_t>(row) * args.members, 1);
  kernels.reduce_combined_row(args, row, combined, log_sum_exp);
}

}  // namespace vitrine::cpu
