// The float matrix kernels: one panel of 16 outputs times one tile of 1 to 16 f32 rows, for float
// weights and for exact numerics.
//
// A block of 32 columns is decoded once to f32, with the products and sums of DequantizeRow, and
// every row of the tile goes by: total = fma(weight[k], row[k], total), k ascending, one output per
// lane. Bound by FMA for many rows; by the latency of one FMA per column or by memory for one.
#pragma once

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/panel_kernels_simd.h"
#include "kernels/cpu/weight_formats_simd.h"

namespace vitrine::cpu {

// Decodes block `b` of a quantised panel to [32 columns][16 lanes].
template <class P, template <class> class FormatOf>
struct QuantizedColumns {
  using Format = FormatOf<P>;
  static constexpr DType kDType = Format::kDType;

  static VITRINE_INLINE const float* Decode(const uint8_t* panel, int b, float* scratch) {
    for (int half = 0; half < kPanelRows / P::kLanes; ++half) {
      DecodedBlock<P> weights;
      Format::Decode(panel, b, half, weights);
      float* out = scratch + P::kLanes * half;
#pragma GCC unroll 8
      for (int q = 0; q < kQuads; ++q) {
        Put<0>(weights, q, out);
        Put<1>(weights, q, out);
        Put<2>(weights, q, out);
        Put<3>(weights, q, out);
      }
    }
    return scratch;
  }

 private:
  template <int kByte>
  static VITRINE_INLINE void Put(const DecodedBlock<P>& weights, int q, float* out) {
    auto quant = P::template ByteOf<kByte>(weights.quads[q]);
    if constexpr (Format::kOffset != 0) quant = P::AddI(quant, P::SetI(-Format::kOffset));
    auto scale = weights.scale;
    if constexpr (Format::kHasHalfScales) {
      scale = P::Mul(scale, P::ToFloat(weights.half_scales[q / 4]));
    }
    auto value = P::Mul(scale, P::ToFloat(quant));
    if constexpr (Format::kHasHalfMinimums) {
      value = P::Add(value, P::Mul(weights.minimum, P::ToFloat(weights.half_minimums[q / 4])));
    } else if constexpr (Format::kHasMinimum) {
      value = P::Add(value, weights.minimum);
    }
    P::Store(out + kPanelRows * (4 * q + kByte), value);
  }
};

template <class P>
struct F32Columns {
  static constexpr DType kDType = DType::kF32;
  static VITRINE_INLINE const float* Decode(const uint8_t* panel, int b, float* /*scratch*/) {
    return reinterpret_cast<const float*>(panel + PackedOffset(kDType, b));
  }
};

template <class P>
struct F16Columns {
  static constexpr DType kDType = DType::kF16;
  static VITRINE_INLINE const float* Decode(const uint8_t* panel, int b, float* scratch) {
    const uint8_t* block = panel + PackedOffset(kDType, b);
    for (int i = 0; i < kBlockColumns * kPanelRows; i += P::kLanes) {
      P::Store(scratch + i, P::LoadF16(block + 2 * i));
    }
    return scratch;
  }
};

template <class P>
struct Bf16Columns {
  static constexpr DType kDType = DType::kBF16;
  static VITRINE_INLINE const float* Decode(const uint8_t* panel, int b, float* scratch) {
    const uint8_t* block = panel + PackedOffset(kDType, b);
    for (int i = 0; i < kBlockColumns * kPanelRows; i += P::kLanes) {
      P::Store(scratch + i, P::LoadBf16(block + 2 * i));
    }
    return scratch;
  }
};

// Adds 32 columns to the totals of `kRows` rows, which are `stride` floats apart.
template <class P, int kRows>
VITRINE_INLINE void AddColumns(const float* weights, const float* rows, size_t stride,
                               float* products) {
  typename P::F totals[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) totals[r] = P::Load(products + kPanelRows * r);
#pragma GCC unroll 4
  for (int k = 0; k < kBlockColumns; ++k) {
    const auto weight = P::Load(weights + kPanelRows * k);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      totals[r] = P::Fma(weight, P::Set(rows[static_cast<size_t>(r) * stride + k]), totals[r]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) P::Store(products + kPanelRows * r, totals[r]);
}

template <class P, class Columns, int kRows>
VITRINE_INLINE void FloatPanelRows(const uint8_t* panel, int blocks, const float* rows,
                                   size_t stride, int count, float* products) {
  constexpr int kBytes = PackedBlockBytes(Columns::kDType);
  alignas(64) float scratch[kBlockColumns * kPanelRows];
  for (int i = 0; i < (count + kRows - 1) / kRows * kRows * kPanelRows; i += P::kLanes) {
    P::Store(products + i, P::Zero());
  }
  for (int b = 0; b < blocks; ++b) {
    PrefetchLines(panel + PackedOffset(Columns::kDType, b) + kPrefetchBytes,
                  kBytes < 1024 ? kBytes : 1024);
    const float* weights = Columns::Decode(panel, b, scratch);
    for (int half = 0; half < kPanelRows; half += P::kLanes) {
      for (int r = 0; r < count; r += kRows) {
        AddColumns<P, kRows>(weights + half, rows + static_cast<size_t>(r) * stride, stride,
                             products + kPanelRows * r + half);
      }
    }
    rows += kBlockColumns;
  }
}

// Rows beyond `count` are read up to the next multiple of the group.
template <class P, class Columns>
void FloatPanelProduct(const uint8_t* panel, int blocks, const float* rows, size_t stride,
                       int count, float* products) {
  if (count == 1) {
    FloatPanelRows<P, Columns, 1>(panel, blocks, rows, stride, count, products);
  } else if (count == 2) {
    FloatPanelRows<P, Columns, 2>(panel, blocks, rows, stride, count, products);
  } else if (count <= 4) {
    FloatPanelRows<P, Columns, 4>(panel, blocks, rows, stride, count, products);
  } else {
    FloatPanelRows<P, Columns, P::kFloatRows>(panel, blocks, rows, stride, count, products);
  }
}

template <class P, class Columns>
void DecodePanelBlock(const uint8_t* panel, int block, float* values) {
  const float* decoded = Columns::Decode(panel, block, values);
  if (decoded != values) __builtin_memcpy(values, decoded, 4 * kBlockColumns * kPanelRows);
}

template <class P, class Columns>
void FillFloatKernels(KernelTable& table) {
  const auto dtype = static_cast<size_t>(Columns::kDType);
  table.float_kernels[dtype] = FloatPanelProduct<P, Columns>;
  table.decode_block[dtype] = DecodePanelBlock<P, Columns>;
}

}  // namespace vitrine::cpu
