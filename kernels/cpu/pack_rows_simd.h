#pragma once

#include "kernels/cpu/rms_norm_simd.h"

namespace vitrine::cpu {

template <class S>
void RunPackRows(const WorkerContext& context, const PackRowsPhase& phase) {
  FillRows<S>(context, phase, [&](int row, BlockWriter<S>& output) {
    const int columns = output.rows().columns;
    const float* input = InputRow(phase.args.input, row, columns);
    for (int b = 0; b < output.rows().blocks; ++b) {
      const int k = 32 * b;
      output.Write(row, b, LoadUpTo16<S>(input + k, columns - k),
                   LoadUpTo16<S>(input + k + 16, columns - k - 16));
    }
  });
}

}  // namespace vitrine::cpu
