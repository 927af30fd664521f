// The integer matrix kernels: one or two panels of 16 outputs times one tile of 1 to 16 int8 rows.
//
// There is one algorithm for all batch sizes. A weight block is decoded once into registers and
// every row of the tile goes by:
//
//   dot    = int32 sum over the 32 columns                      (exact, order does not matter)
//   total  = fma(float(dot), weight_scale * row_scale, total)   (blocks in ascending order)
//   total  = fma(weight_minimum, row_scaled_sum, total)         (types with a minimum)
//
// Every output therefore sees the same operations in the same order for every batch size, tile
// position, thread count and instruction set: results are equal bit for bit.
//
// Bound by the issue rate of VPDPBUSD, FMA and multiply, which share one 512-bit slot per cycle on
// Zen 4 and two on Zen 5: at most 73 % of the VNNI peak with a minimum, 80 % without. One panel at
// a time reaches 70 % and 77 % on Zen 4; on Zen 5 its loads, 11 for 8 products, allow no more than
// 66 %, and two panels at a time reach 71 % and 78 %. A lone row is bound by memory.
#pragma once

#include <utility>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/row_buffer.h"
#include "kernels/cpu/weight_formats_simd.h"

namespace vitrine::cpu {

// How far ahead of the block in work the kernels prefetch: about one to two panels. The hardware
// prefetcher follows the stream as well but stops at every 4 KiB page.
inline constexpr int kPrefetchBytes = 8192;

// The same for each of two panels side by side: with as much as above, what comes from L2 for a
// prompt pushes activations out of L1.
inline constexpr int kPairPrefetchBytes = 5500;

VITRINE_INLINE void PrefetchLines(const void* address, int bytes) {
#pragma GCC unroll 16
  for (int offset = 0; offset < bytes; offset += 64) {
    __builtin_prefetch(static_cast<const char*>(address) + offset, 0, 3);
  }
}

// Prefetches for two panels that are read side by side: the blocks kPairPrefetchBytes ahead, from
// the end of the panels on those of the next pair.
template <class Format>
class PairPrefetcher {
 public:
  VITRINE_INLINE PairPrefetcher(const uint8_t* panels, int blocks)
      : panels_(panels), panel_bytes_(PackedOffset(Format::kDType, blocks)), blocks_(blocks) {
    Skip(kPairPrefetchBytes / PackedBlockBytes(Format::kDType));
  }

  VITRINE_INLINE void Fetch() {
    const uint8_t* block = panels_ + PackedOffset(Format::kDType, block_);
    PrefetchLines(block, PackedBlockBytes(Format::kDType));
    PrefetchLines(block + panel_bytes_, PackedBlockBytes(Format::kDType));
    Skip(1);
  }

 private:
  VITRINE_INLINE void Skip(int count) {
    for (block_ += count; block_ >= blocks_; block_ -= blocks_) panels_ += 2 * panel_bytes_;
  }

  const uint8_t* panels_;
  const int64_t panel_bytes_;
  const int blocks_;
  int block_ = 0;
};

template <class P, class Format>
VITRINE_INLINE void DecodeAndFetch(const uint8_t* panel, int b, int half, DecodedBlock<P>& out) {
  PrefetchLines(panel + PackedOffset(Format::kDType, b) + kPrefetchBytes,
                PackedBlockBytes(Format::kDType));
  Format::Decode(panel, b, half, out);
}

// Where the integer sum of a row starts: minus the offset that made the weights unsigned times the
// sum of the row, at no cost.
template <class P, class Format>
VITRINE_INLINE typename P::I StartSum(const ActivationRow& row) {
  if constexpr (Format::kOffset == 0) {
    return P::ZeroI();
  } else if constexpr (Format::kOffset == 8) {
    return P::SetI(row.minus8_sum);
  } else {
    static_assert(Format::kOffset % 8 == 0);
    constexpr int kShift = __builtin_ctz(Format::kOffset) - 3;
    return P::template ShiftLeft<kShift>(P::SetI(row.minus8_sum));
  }
}

// The same for one half of the columns.
template <class P, class Format, int kHalf>
VITRINE_INLINE typename P::I StartHalfSum(const ActivationRow& row) {
  if constexpr (Format::kOffset == 0) return P::ZeroI();
  const int32_t high_sum = row.minus8_sum / -8 - row.low_sum;
  return P::SetI(-Format::kOffset * (kHalf == 0 ? row.low_sum : high_sum));
}

template <class P, class Format>
VITRINE_INLINE typename P::I Dot(typename P::I sum, typename P::Bytes weights, const int8_t* quad) {
  if constexpr (kIsWide<Format>) {
    return P::DotWide(sum, weights, quad);
  } else {
    return P::Dot(sum, weights, quad);
  }
}

// Each half of the columns has a scale of its own, an integer; the sum of both is exact in f32.
template <class P, class Format, int kCount>
VITRINE_INLINE void DotHalves(const DecodedBlock<P>& weights, const ActivationRow* rows,
                              typename P::I* sums) {
#pragma GCC unroll 8
  for (int r = 0; r < kCount; ++r) {
    auto low = StartHalfSum<P, Format, 0>(rows[r]);
    auto high = StartHalfSum<P, Format, 1>(rows[r]);
#pragma GCC unroll 4
    for (int q = 0; q < kQuads / 2; ++q) {
      low = Dot<P, Format>(low, weights.quads[q], rows[r].values + 4 * q);
      high = Dot<P, Format>(high, weights.quads[q + 4], rows[r].values + 4 * (q + 4));
    }
    sums[r] = P::AddI(P::MulI(low, weights.half_scales[0]), P::MulI(high, weights.half_scales[1]));
  }
}

// Integer dot products of `kCount` rows, interleaved so that their dependency chains overlap.
template <class P, class Format, int kCount>
VITRINE_INLINE void DotWhole(const DecodedBlock<P>& weights, const ActivationRow* rows,
                             typename P::I* sums) {
#pragma GCC unroll 8
  for (int r = 0; r < kCount; ++r) sums[r] = StartSum<P, Format>(rows[r]);
#pragma GCC unroll 8
  for (int q = 0; q < kQuads; ++q) {
#pragma GCC unroll 8
    for (int r = 0; r < kCount; ++r) {
      sums[r] = Dot<P, Format>(sums[r], weights.quads[q], rows[r].values + 4 * q);
    }
  }
}

template <class P, class Format, int kCount>
VITRINE_INLINE void DotRows(const DecodedBlock<P>& weights, const ActivationRow* rows,
                            typename P::I* sums) {
  if constexpr (Format::kHasHalfScales) {
    DotHalves<P, Format, kCount>(weights, rows, sums);
  } else {
    DotWhole<P, Format, kCount>(weights, rows, sums);
  }
}

template <class P, class Format>
VITRINE_INLINE typename P::F AddScaled(const BlockScales<P>& weights, const ActivationRow& row,
                                       typename P::I dot, typename P::F total) {
  const auto scale = P::Mul(weights.scale, P::Set(row.scale));
  total = P::Fma(P::ToFloat(dot), scale, total);
  if constexpr (Format::kHasHalfMinimums) {
    const int32_t high_sum = row.minus8_sum / -8 - row.low_sum;
    const auto sum = P::AddI(P::MulI(weights.half_minimums[0], P::SetI(row.low_sum)),
                             P::MulI(weights.half_minimums[1], P::SetI(high_sum)));
    total = P::Fma(P::ToFloat(sum), P::Mul(weights.minimum, P::Set(row.scale)), total);
  } else if constexpr (Format::kHasMinimum) {
    total = P::Fma(weights.minimum, P::Set(row.scaled_sum), total);
  }
  return total;
}

// The sum of one row. Even and odd quads get their own chain: there are no other rows to hide the
// latency.
template <class P, class Format>
VITRINE_INLINE typename P::I DotOneRow(const DecodedBlock<P>& weights, const ActivationRow& row) {
  typename P::I sums[2] = {StartSum<P, Format>(row), P::ZeroI()};
#pragma GCC unroll 8
  for (int q = 0; q < kQuads; ++q) {
    sums[q % 2] = Dot<P, Format>(sums[q % 2], weights.quads[q], row.values + 4 * q);
  }
  return P::AddI(sums[0], sums[1]);
}

template <class P, class Format>
VITRINE_INLINE void OneRow(const uint8_t* panel, int blocks, const ActivationBlock* tile, int half,
                           float* products) {
  auto total = P::Zero();
  for (int b = 0; b < blocks; ++b) {
    DecodedBlock<P> weights;
    DecodeAndFetch<P, Format>(panel, b, half, weights);
    const ActivationRow& row = tile[b].rows[0];
    typename P::I dot;
    if constexpr (Format::kHasHalfScales) {
      DotHalves<P, Format, 1>(weights, &row, &dot);
    } else {
      dot = DotOneRow<P, Format>(weights, row);
    }
    total = AddScaled<P, Format>(weights, row, dot, total);
  }
  P::Store(products, total);
}

// A few rows with all totals in registers.
template <class P, class Format, int kRows>
VITRINE_INLINE void FewRows(const uint8_t* panel, int blocks, const ActivationBlock* tile, int half,
                            float* products) {
  constexpr int kGroups = (kRows + P::kRowsInFlight - 1) / P::kRowsInFlight;
  typename P::F totals[kRows];
  for (auto& total : totals) total = P::Zero();
  for (int b = 0; b < blocks; ++b) {
    DecodedBlock<P> weights;
    DecodeAndFetch<P, Format>(panel, b, half, weights);
    const auto group = [&]<int kGroup>() VITRINE_LAMBDA_INLINE {
      constexpr int kFirst = kGroup * P::kRowsInFlight;
      constexpr int kLeft = kRows - kFirst;
      constexpr int kCount = kLeft < P::kRowsInFlight ? kLeft : P::kRowsInFlight;
      typename P::I sums[kCount];
      DotRows<P, Format, kCount>(weights, tile[b].rows + kFirst, sums);
#pragma GCC unroll 4
      for (int r = 0; r < kCount; ++r) {
        totals[kFirst + r] =
            AddScaled<P, Format>(weights, tile[b].rows[kFirst + r], sums[r], totals[kFirst + r]);
      }
    };
    [&]<int... kGroup>(std::integer_sequence<int, kGroup...>) VITRINE_LAMBDA_INLINE {
      (group.template operator()<kGroup>(), ...);
    }(std::make_integer_sequence<int, kGroups>());
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) P::Store(products + kPanelRows * r, totals[r]);
}

// More rows. The totals live in L1: one load and one store per 8 integer products are free.
template <class P, class Format>
VITRINE_INLINE void ManyRows(const uint8_t* panel, int blocks, const ActivationBlock* tile,
                             int rows, int half, float* products) {
  constexpr int kCount = P::kRowsInFlight;
  for (int r = 0; r < rows; r += kCount) {
    for (int i = 0; i < kCount; ++i) P::Store(products + kPanelRows * (r + i), P::Zero());
  }
  for (int b = 0; b < blocks; ++b) {
    DecodedBlock<P> weights;
    DecodeAndFetch<P, Format>(panel, b, half, weights);
#pragma GCC unroll 1
    for (int r = 0; r < rows; r += kCount) {
      typename P::I sums[kCount];
      DotRows<P, Format, kCount>(weights, tile[b].rows + r, sums);
#pragma GCC unroll 4
      for (int i = 0; i < kCount; ++i) {
        float* total = products + kPanelRows * (r + i);
        P::Store(total,
                 AddScaled<P, Format>(weights, tile[b].rows[r + i], sums[i], P::Load(total)));
      }
    }
  }
}

// Two panels that follow each other: a broadcast of four activations serves both.
template <class P, template <class> class FormatOf>
void PairProduct(const uint8_t* panels, int blocks, const ActivationBlock* tile, int rows,
                 float* products) {
  using Format = FormatOf<P>;
  constexpr int kCount = P::kRowsInFlight;
  constexpr int kSecond = kTileRows * kPanelRows;
  const uint8_t* second_panel = panels + PackedOffset(Format::kDType, blocks);
  for (int r = 0; r < rows; r += kCount) {
    for (int i = 0; i < kCount; ++i) {
      P::Store(products + kPanelRows * (r + i), P::Zero());
      P::Store(products + kSecond + kPanelRows * (r + i), P::Zero());
    }
  }
  PairPrefetcher<Format> prefetcher(panels, blocks);
  for (int b = 0; b < blocks; ++b) {
    DecodedBlock<P> weights[2];
    prefetcher.Fetch();
    Format::Decode(panels, b, 0, weights[0]);
    Format::Decode(second_panel, b, 0, weights[1]);
#pragma GCC unroll 1
    for (int r = 0; r < rows; r += kCount) {
      typename P::I sums[2][kCount];
      const ActivationRow* group = tile[b].rows + r;
#pragma GCC unroll 4
      for (int i = 0; i < kCount; ++i) {
        sums[0][i] = StartSum<P, Format>(group[i]);
        sums[1][i] = sums[0][i];
      }
#pragma GCC unroll 8
      for (int q = 0; q < kQuads; ++q) {
#pragma GCC unroll 4
        for (int i = 0; i < kCount; ++i) {
          const int8_t* quad = group[i].values + 4 * q;
          sums[0][i] = Dot<P, Format>(sums[0][i], weights[0].quads[q], quad);
          sums[1][i] = Dot<P, Format>(sums[1][i], weights[1].quads[q], quad);
        }
      }
#pragma GCC unroll 4
      for (int i = 0; i < kCount; ++i) {
#pragma GCC unroll 2
        for (int p = 0; p < 2; ++p) {
          float* total = products + kSecond * p + kPanelRows * (r + i);
          P::Store(total, AddScaled<P, Format>(weights[p], group[i], sums[p][i], P::Load(total)));
        }
      }
    }
  }
}

// kRows: 1 to P::kRegisterRows, or 0 for any number above.
template <class P, template <class> class Format, int kRows>
void PanelProduct(const uint8_t* panel, int blocks, const ActivationBlock* tile, int rows,
                  float* products) {
  for (int half = 0; half < kPanelRows / P::kLanes; ++half) {
    float* out = products + P::kLanes * half;
    if constexpr (kRows == 0) {
      ManyRows<P, Format<P>>(panel, blocks, tile, rows, half, out);
    } else if constexpr (kRows == 1) {
      OneRow<P, Format<P>>(panel, blocks, tile, half, out);
    } else {
      FewRows<P, Format<P>, kRows>(panel, blocks, tile, half, out);
    }
  }
}

template <class P, template <class> class Format>
void FillIntegerKernels(KernelTable& table) {
  auto& kernels = table.integer_kernels[static_cast<size_t>(Format<P>::kDType)];
  [&]<int... kRows>(std::integer_sequence<int, kRows...>) {
    ((kernels[kRows + 1] = PanelProduct<P, Format, kRows + 1>), ...);
  }(std::make_integer_sequence<int, P::kRegisterRows>());
  for (int rows = P::kRegisterRows + 1; rows <= kTileRows; ++rows) {
    kernels[rows] = PanelProduct<P, Format, 0>;
  }
  if constexpr (P::kTakesTwoPanels && !Format<P>::kHasHalfScales) {
    table.pair_kernels[static_cast<size_t>(Format<P>::kDType)] = PairProduct<P, Format>;
  }
}

}  // namespace vitrine::cpu
