#pragma once

#include "kernels/cpu/rms_norm_simd.h"

namespace vitrine::cpu {

template <class S>
void NormalizeRow(const LayerNormArgs& args, int row, BlockWriter<S>& output) {
  const int columns = output.rows().columns;
  const float* input = InputRow(args.input, row, columns);
  auto sum = S::Zero();
  for (int k = 0; k < columns; k += 16) sum = S::Add(sum, LoadUpTo16<S>(input + k, columns - k));
  const auto mean = S::Set(S::ReduceAdd(sum) / static_cast<float>(columns));
  auto squares = S::Zero();
  for (int k = 0; k < columns; k += 16) {
    // Lanes beyond the last column must stay 0, which the mean is not.
    const auto means = k + 16 <= columns ? mean : PartOf<S>(mean, columns - k);
    const auto centred = S::Sub(LoadUpTo16<S>(input + k, columns - k), means);
    squares = S::Fma(centred, centred, squares);
  }
  const float variance = S::ReduceAdd(squares) / static_cast<float>(columns);
  const auto factor = S::Set(1.0f / std::sqrt(variance + args.epsilon));
  for (int b = 0; b < output.rows().blocks; ++b) {
    typename S::F halves[2];
    for (int h = 0; h < 2; ++h) {
      const int k = 32 * b + 16 * h;
      const auto centred = S::Sub(LoadUpTo16<S>(input + k, columns - k), mean);
      const auto weight = LoadUpTo16<S>(args.weight.data() + k, columns - k);
      halves[h] = S::Mul(S::Mul(centred, factor), weight);
      if (!args.bias.empty()) {
        halves[h] = S::Add(halves[h], LoadUpTo16<S>(args.bias.data() + k, columns - k));
      }
    }
    output.Write(row, b, halves[0], halves[1]);
    if (args.normalized.empty()) continue;
    float* normalized = args.normalized.data() + int64_t{row} * columns + 32 * b;
    for (int h = 0; h < 2; ++h) {
      const int count = columns - 32 * b - 16 * h;
      if (count > 0) StoreUpTo16<S>(normalized + 16 * h, halves[h], count);
    }
  }
}

template <class S>
void RunLayerNorm(const WorkerContext& context, const LayerNormPhase& phase) {
  FillRows<S>(context, phase,
              [&](int row, BlockWriter<S>& output) { NormalizeRow<S>(phase.args, row, output); });
}

}  // namespace vitrine::cpu
