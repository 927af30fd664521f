// Matrix ops are kernel plus epilogue: the products of a few panels and a tile of up to 16 rows lie
// in L1 when the epilogue takes them.
#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/panel_kernels_simd.h"
#include "kernels/cpu/rms_norm_simd.h"
#include "kernels/cpu/vector_math_simd.h"

namespace vitrine::cpu {

// Work items are a unit of panels times this many rows: small enough to end evenly.
inline constexpr int kSliceRows = 128;

VITRINE_INLINE void MultiplyPanel(const WorkerContext& context, const CpuMatrix& matrix,
                                  const Panel& panel, const RowView& input, int first_row, int rows,
                                  float* products) {
  const auto dtype = static_cast<size_t>(panel.dtype);
  if (input.wants_int8 && !IsFloat(panel.dtype)) {
    context.kernels.integer_kernels[dtype][static_cast<size_t>(rows)](
        panel.data, matrix.blocks(), input.Tile(first_row / kTileRows), rows, products);
  } else {
    context.kernels.float_kernels[dtype](panel.data, matrix.blocks(), input.Row(first_row),
                                         input.stride(), rows, products);
  }
}

// Up to here two panels one by one are as fast as a pair.
inline constexpr int kSinglePanelRows = 8;

// Null: not a pair.
VITRINE_INLINE IntegerKernel PairKernelOf(const WorkerContext& context, const RowView& input,
                                          const Panel& first, const Panel& second, int rows) {
  if (!input.wants_int8 || rows <= kSinglePanelRows || first.dtype != second.dtype) return nullptr;
  return context.kernels.pair_kernels[static_cast<size_t>(first.dtype)];
}

// The products of panels [first, first + count), each in an array of its own.
VITRINE_INLINE void MultiplyPanels(const WorkerContext& context, const CpuMatrix& matrix, int first,
                                   int count, const RowView& input, int first_row, int rows) {
  auto& products = context.scratch.products;
  const Panel* panels = matrix.panels().data() + first;
  for (int p = 0; p < count;) {
    const IntegerKernel pair =
        p + 1 < count ? PairKernelOf(context, input, panels[p], panels[p + 1], rows) : nullptr;
    if (pair != nullptr) {
      pair(panels[p].data, matrix.blocks(), input.Tile(first_row / kTileRows), rows, products[p]);
      p += 2;
    } else {
      MultiplyPanel(context, matrix, panels[p], input, first_row, rows, products[p]);
      ++p;
    }
  }
}

// Half of every activation was written by another core, at up to 300 ns a line: asking for all
// lines at once beats meeting them one block at a time.
VITRINE_INLINE void FetchRows(const RowView& input, int rows) {
  if (!input.wants_int8) return;
  for (int b = 0; b < input.blocks; ++b) {
    PrefetchLines(input.Tile(0) + b, rows * static_cast<int>(sizeof(ActivationRow)));
  }
}

// Calls visit(unit, first_row, rows) for every unit and every tile of rows. The rows of many are
// shared out, not the units: what a worker reads of a prompt, in all ops, it mostly wrote itself.
template <class Visit>
VITRINE_INLINE void ForEachTile(const WorkerContext& context, int units, int rows, Visit&& visit) {
  const int slices = (rows + kSliceRows - 1) / kSliceRows;
  context.pool.ForEachEven(context.worker, int64_t{units} * slices, [&](int64_t item) {
    const int unit = static_cast<int>(item % units);
    const int begin = static_cast<int>(item / units) * kSliceRows;
    const int end = begin + kSliceRows < rows ? begin + kSliceRows : rows;
    for (int first = begin; first < end; first += kTileRows) {
      visit(unit, first, end - first < kTileRows ? end - first : kTileRows);
    }
  });
}

// The same for panels, `unit_panels` of them to a unit, fewer in the last: calls visit(first panel,
// panels, first_row, rows).
template <class Visit>
VITRINE_INLINE void ForEachPanelTile(const WorkerContext& context, int panel_count, int unit_panels,
                                     int rows, Visit&& visit) {
  const int units = (panel_count + unit_panels - 1) / unit_panels;
  ForEachTile(context, units, rows, [&](int unit, int first_row, int tile_rows) {
    const int first = unit * unit_panels;
    const int left = panel_count - first;
    visit(first, left < unit_panels ? left : unit_panels, first_row, tile_rows);
  });
}

// Panels of a work item of an op that could take each alone: two where that still leaves enough
// items to share out evenly.
VITRINE_INLINE int UnitPanels(const WorkerContext& context, int panels, int rows) {
  const int slices = (rows + kSliceRows - 1) / kSliceRows;
  return rows > kSinglePanelRows && panels * slices >= 8 * context.pool.workers() ? 2 : 1;
}

template <class S>
VITRINE_INLINE typename S::F LoadBias(const DeviceSpan<const float>& bias, const Panel& panel) {
  if (bias.empty()) return S::Zero();
  return LoadUpTo16<S>(bias.data() + panel.first_row, panel.rows);
}

VITRINE_INLINE RowView InputOf(const WorkerContext& context, const RowBuffer* input,
                               bool is_private) {
  const CpuRowBuffer& rows = AsRows(input);
  return is_private ? rows.PrivateTo(context.worker) : rows.shared();
}

template <class S>
VITRINE_INLINE void StoreProducts(const MatMulArgs& args, const Panel& panel, int first_row,
                                  int rows, const float* products) {
  const auto columns = static_cast<size_t>(args.weight->rows());
  const auto bias = LoadBias<S>(args.bias, panel);
  float* out = args.output.data() + static_cast<size_t>(first_row) * columns +
               static_cast<size_t>(panel.first_row);
  for (int r = 0; r < rows; ++r, out += columns) {
    auto value = S::Load(products + kPanelRows * r);
    if (!args.bias.empty()) value = S::Add(value, bias);
    if (args.output_scale != 1.0f) value = S::Mul(value, S::Set(args.output_scale));
    if (args.softcap != 0.0f) {
      value = S::Mul(S::Set(args.softcap), Tanh<S>(S::Div(value, S::Set(args.softcap))));
    }
    if (args.add_to_output) value = S::Add(LoadUpTo16<S>(out, panel.rows), value);
    StoreUpTo16<S>(out, value, panel.rows);
  }
}

// The lines that StoreProducts will write: they come while the products are computed.
template <class S>
VITRINE_INLINE void FetchOutputs(const MatMulArgs& args, const Panel& panel, int first_row,
                                 int rows) {
  const auto columns = static_cast<size_t>(args.weight->rows());
  const float* out = args.output.data() + static_cast<size_t>(first_row) * columns +
                     static_cast<size_t>(panel.first_row);
  for (int r = 0; r < rows; ++r, out += columns) S::FetchForWriting(out);
}

template <class S>
void RunMatMul(const WorkerContext& context, const MatMulPhase& phase) {
  const MatMulArgs& args = phase.args;
  const CpuMatrix& matrix = AsMatrix(args.weight);
  const RowView input = InputOf(context, args.input, phase.private_input);
  if (args.rows <= kTileRows) FetchRows(input, args.rows);
  const int panel_count = static_cast<int>(matrix.panels().size());
  const int unit_panels = UnitPanels(context, panel_count, args.rows);
  const auto visit = [&](int first, int count, int first_row, int rows) {
    for (int p = 0; p < count; ++p) {
      FetchOutputs<S>(args, matrix.panels().data()[first + p], first_row, rows);
    }
    MultiplyPanels(context, matrix, first, count, input, first_row, rows);
    for (int p = 0; p < count; ++p) {
      StoreProducts<S>(args, matrix.panels().data()[first + p], first_row, rows,
                       context.scratch.products[p]);
    }
  };
  ForEachPanelTile(context, panel_count, unit_panels, args.rows, visit);
}

}  // namespace vitrine::cpu
