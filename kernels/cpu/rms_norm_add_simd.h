#pragma once

#include "kernels/cpu/rms_norm_simd.h"

namespace vitrine::cpu {

template <class S>
void RunRmsNormAdd(const WorkerContext& context, const RmsNormAddPhase& phase) {
  const RmsNormAddArgs& args = phase.args;
  const int columns = args.columns;
  context.pool.ForEach(context.worker, args.rows, 1, [&](int64_t item) {
    const int row = static_cast<int>(item);
    const float* input = InputRow(args.input, row, columns);
    float* output = args.output.data() + item * columns;
    const auto factor = S::Set(RmsFactor<S>(input, columns, args.epsilon));
    for (int k = 0; k < columns; k += 16) {
      const int count = columns - k;
      const auto scaled = S::Mul(LoadUpTo16<S>(input + k, count), factor);
      const auto sum = S::Add(LoadUpTo16<S>(output + k, count),
                              S::Mul(scaled, LoadUpTo16<S>(args.weight.data() + k, count)));
      StoreUpTo16<S>(output + k, sum, count);
    }
  });
}

}  // namespace vitrine::cpu
