#pragma once

#include <cmath>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/row_output_simd.h"

namespace vitrine::cpu {

template <class S>
VITRINE_INLINE typename S::F LoadUpTo16(const float* values, int count) {
  if (count >= 16) return S::Load(values);
  return count > 0 ? S::LoadPartial(values, count) : S::Zero();
}

template <class S>
VITRINE_INLINE void StoreUpTo16(float* values, typename S::F x, int count) {
  if (count >= 16) {
    S::Store(values, x);
  } else {
    S::StorePartial(values, x, count);
  }
}

// The first `count` lanes; 0 in the others.
template <class S>
VITRINE_INLINE typename S::F PartOf(typename S::F x, int count) {
  alignas(64) float lanes[16];
  S::Store(lanes, x);
  return LoadUpTo16<S>(lanes, count);
}

// 1 / sqrt(mean of squares + epsilon)
template <class S>
VITRINE_INLINE float RmsFactor(const float* values, int count, float epsilon) {
  auto even = S::Zero();
  auto odd = S::Zero();
  for (int k = 0; k < count; k += 32) {
    const auto low = LoadUpTo16<S>(values + k, count - k);
    const auto high = LoadUpTo16<S>(values + k + 16, count - k - 16);
    even = S::Fma(low, low, even);
    odd = S::Fma(high, high, odd);
  }
  const float mean = S::ReduceAdd(S::Add(even, odd)) / static_cast<float>(count);
  return 1.0f / std::sqrt(mean + epsilon);
}

VITRINE_INLINE const float* InputRow(const DeviceSpan<const float>& input, int row, int columns) {
  return input.data() + static_cast<size_t>(row) * static_cast<size_t>(columns);
}

template <class S>
void NormalizeRow(const RmsNormArgs& args, int row, BlockWriter<S>& output) {
  const int columns = output.rows().columns;
  const float* input = InputRow(args.input, row, columns);
  const auto factor = S::Set(RmsFactor<S>(input, columns, args.epsilon));
  for (int b = 0; b < output.rows().blocks; ++b) {
    typename S::F halves[2];
    for (int h = 0; h < 2; ++h) {
      const int k = 32 * b + 16 * h;
      halves[h] = S::Mul(S::Mul(LoadUpTo16<S>(input + k, columns - k), factor),
                         LoadUpTo16<S>(args.weight.data() + k, columns - k));
    }
    output.Write(row, b, halves[0], halves[1]);
  }
}

// Fills rows of a buffer, or of the worker's own copy of it. fill(row, writer)
template <class S, class Args, class Fill>
VITRINE_INLINE void FillRows(const WorkerContext& context, const RowPhase<Args>& phase,
                             Fill&& fill) {
  const CpuRowBuffer& output = AsRows(phase.args.output);
  if (phase.is_private) {
    BlockWriter<S> writer(output.PrivateTo(context.worker), context.scratch.pending);
    for (int row = 0; row < phase.args.rows; ++row) fill(row, writer);
    return writer.Finish();
  }
  constexpr int kGrain = 4;
  BlockWriter<S> writer(output.shared(), context.scratch.pending);
  context.pool.ForEach(context.worker, phase.args.rows, kGrain,
                       [&](int64_t row) { fill(static_cast<int>(row), writer); });
  writer.Finish();
}

template <class S>
void RunRmsNorm(const WorkerContext& context, const RmsNormPhase& phase) {
  FillRows<S>(context, phase,
              [&](int row, BlockWriter<S>& output) { NormalizeRow<S>(phase.args, row, output); });
}

template <class S>
void RunQuantize(const WorkerContext& context, const QuantizePhase& phase) {
  const RowView& rows = phase.rows->shared();
  BlockWriter<S> writer(rows, context.scratch.pending);
  context.pool.ForEach(context.worker, phase.count, 1, [&](int64_t item) {
    const int row = static_cast<int>(item);
    const float* values = rows.Row(row);
    for (int b = 0; b < rows.blocks; ++b) {
      writer.Quantize(S::Load(values + 32 * b), S::Load(values + 32 * b + 16), rows.Block(row, b));
    }
  });
  writer.Finish();
}

}  // namespace vitrine::cpu
