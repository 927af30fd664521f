#pragma once

#include "kernels/cpu/mat_mul_simd.h"
#include "kernels/cpu/row_output_simd.h"
#include "kernels/cpu/vector_math_simd.h"

namespace vitrine::cpu {

template <class S, Activation kActivation>
VITRINE_INLINE typename S::F Activate(typename S::F x) {
  if constexpr (kActivation == Activation::kSilu) return Silu<S>(x);
  if constexpr (kActivation == Activation::kGeluErf) return GeluErf<S>(x);
  if constexpr (kActivation == Activation::kGeluTanh) return GeluTanh<S>(x);
  // NaN is the second operand, which Max returns.
  const auto positive = S::Max(S::Zero(), x);
  return kActivation == Activation::kRelu ? positive : S::Mul(positive, positive);
}

// 32 outputs, that is one block of the output rows, are 4 panels: gate, up, gate, up.
template <class S, Activation kActivation>
void RunGated(const WorkerContext& context, const ActivatedMatMulPhase& phase) {
  constexpr int kUnitPanels = 4;
  const ActivatedMatMulArgs& args = phase.args;
  const CpuMatrix& matrix = AsMatrix(args.weight);
  const RowView input = InputOf(context, args.input, phase.private_input);
  BlockWriter<S> output(AsRows(args.output).shared(), context.scratch.pending);
  auto& products = context.scratch.products;
  if (args.rows <= kTileRows) FetchRows(input, args.rows);
  const int panel_count = static_cast<int>(matrix.panels().size());
  const auto visit = [&](int first, int panels, int first_row, int rows) {
    typename S::F bias[kUnitPanels];
    output.FetchBlock(first_row, first / kUnitPanels, rows);
    MultiplyPanels(context, matrix, first, panels, input, first_row, rows);
    for (int p = 0; p < panels; ++p) {
      bias[p] = LoadBias<S>(args.bias, matrix.panels().data()[first + p]);
    }
    for (int r = 0; r < rows; ++r) {
      typename S::F values[2] = {S::Zero(), S::Zero()};
      for (int half = 0; half < panels / 2; ++half) {
        auto gate = S::Load(products[2 * half] + kPanelRows * r);
        auto up = S::Load(products[2 * half + 1] + kPanelRows * r);
        if (!args.bias.empty()) {
          gate = S::Add(gate, bias[2 * half]);
          up = S::Add(up, bias[2 * half + 1]);
        }
        values[half] = S::Mul(Activate<S, kActivation>(gate), up);
      }
      output.Write(first_row + r, first / kUnitPanels, values[0], values[1]);
    }
  };
  ForEachPanelTile(context, panel_count, kUnitPanels, args.rows, visit);
  output.Finish();
}

// The first of the panels that share outputs with a block of the output rows: two, or more where a
// part of the matrix ended within a panel.
VITRINE_INLINE int FirstPanelOf(const CpuMatrix& matrix, int unit) {
  const int64_t begin = int64_t{unit} * kBlockColumns;
  int low = 0;
  int high = static_cast<int>(matrix.panels().size());
  while (low < high) {
    const int middle = (low + high) / 2;
    const Panel& panel = matrix.panels()[static_cast<size_t>(middle)];
    if (panel.first_row + panel.rows <= begin) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Puts the outputs of a panel that lie in columns [begin, begin + 32) into `block`, [rows][32].
template <class S, Activation kActivation>
VITRINE_INLINE void ActivatePanel(const ActivatedMatMulArgs& args, const Panel& panel,
                                  int64_t begin, int rows, float* products, float* block) {
  const auto bias = LoadBias<S>(args.bias, panel);
  for (int r = 0; r < rows; ++r, products += kPanelRows, block += kBlockColumns) {
    auto value = S::Load(products);
    if (!args.bias.empty()) value = S::Add(value, bias);
    S::Store(products, Activate<S, kActivation>(value));
    for (int lane = 0; lane < panel.rows; ++lane) {
      const int64_t column = panel.first_row + lane - begin;
      if (column >= 0 && column < kBlockColumns) block[column] = products[lane];
    }
  }
}

template <class S, Activation kActivation>
void RunStacked(const WorkerContext& context, const ActivatedMatMulPhase& phase) {
  const ActivatedMatMulArgs& args = phase.args;
  const CpuMatrix& matrix = AsMatrix(args.weight);
  const RowView input = InputOf(context, args.input, phase.private_input);
  BlockWriter<S> output(AsRows(args.output).shared(), context.scratch.pending);
  auto& products = context.scratch.products;
  float* block = products[2];
  if (args.rows <= kTileRows) FetchRows(input, args.rows);
  const auto panel_count = static_cast<int>(matrix.panels().size());
  ForEachTile(context, output.rows().blocks, args.rows, [&](int unit, int first_row, int rows) {
    const int64_t begin = int64_t{unit} * kBlockColumns;
    output.FetchBlock(first_row, unit, rows);
    for (int i = 0; i < rows * kBlockColumns; i += 16) S::Store(block + i, S::Zero());
    const Panel* panels = matrix.panels().data();
    const auto is_wanted = [&](int p) {
      return p < panel_count && panels[p].first_row < begin + kBlockColumns;
    };
    for (int p = FirstPanelOf(matrix, unit); is_wanted(p); p += 2) {
      const int count = is_wanted(p + 1) ? 2 : 1;
      MultiplyPanels(context, matrix, p, count, input, first_row, rows);
      for (int i = 0; i < count; ++i) {
        ActivatePanel<S, kActivation>(args, panels[p + i], begin, rows, products[i], block);
      }
    }
    for (int r = 0; r < rows; ++r) {
      const float* values = block + r * kBlockColumns;
      output.Write(first_row + r, unit, S::Load(values), S::Load(values + 16));
    }
  });
  output.Finish();
}

template <class S, Activation kActivation>
void RunActivated(const WorkerContext& context, const ActivatedMatMulPhase& phase) {
  if (phase.args.weight->layout() == RowLayout::kGateUp) {
    RunGated<S, kActivation>(context, phase);
  } else {
    RunStacked<S, kActivation>(context, phase);
  }
}

template <class S>
void RunActivatedMatMul(const WorkerContext& context, const ActivatedMatMulPhase& phase) {
  switch (phase.args.activation) {
    case Activation::kSilu:
      return RunActivated<S, Activation::kSilu>(context, phase);
    case Activation::kGeluErf:
      return RunActivated<S, Activation::kGeluErf>(context, phase);
    case Activation::kGeluTanh:
      return RunActivated<S, Activation::kGeluTanh>(context, phase);
    case Activation::kRelu:
      return RunActivated<S, Activation::kRelu>(context, phase);
    case Activation::kReluSquared:
      return RunActivated<S, Activation::kReluSquared>(context, phase);
  }
}

}  // namespace vitrine::cpu
