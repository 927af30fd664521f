// The integer matrix kernels where no instruction adds four products: AVX2 without VNNI. The
// arithmetic, and so every bit of the results, is that of panel_kernels_simd.h.
//
// VPMADDUBSW adds two products in 16 bits. Weights of 4 bits leave room there for the pairs of all
// 32 columns: a multiplication costs one addition, and the step to 32 bits comes once a block
// instead of once a multiplication. Weights of 5 and 6 bits take that step more often, wider ones
// every time, their signs having moved to the activations. What is loaded of a row meets both
// halves of a panel of narrow weights; with one of them, loads would be the limit.
//
// Bound by the multiplications, two a cycle, and by four vector instructions a cycle in all: one
// Zen 3 core passes a block of 16 outputs and 32 columns by a row in 4.7 ns with weights of 4 bits
// (3.1 at best), in 8.4 ns with weights of 8.
#pragma once

#include "kernels/cpu/panel_kernels_simd.h"

namespace vitrine::cpu {

// Quads whose pairs add up in 16 bits; activations are at most 127.
constexpr int QuadsInWords(int largest_weight) {
  int quads = kQuads;
  while (quads * 2 * 127 * largest_weight > INT16_MAX) quads /= 2;
  return quads;
}

// So many of them, in which one scale multiplies all.
template <class Format>
inline constexpr int kRunQuads = Format::kHasHalfScales &&
                                         QuadsInWords(Format::kLargest) > kQuads / 2
                                     ? kQuads / 2
                                     : QuadsInWords(Format::kLargest);

// A block of both halves of a panel. Operands of narrow weights are quads[0][q][half], of wide ones
// quads[half][q], their magnitudes and then they themselves with their signs.
template <class P>
struct PairedBlock {
  typename P::Bytes quads[2][kQuads][2];
  BlockScales<P> halves[2];
  typename P::Words scale_words[2][2];  // half_scales of `halves`, in both words of a lane.
};

template <class P, class Format>
VITRINE_INLINE void DecodePaired(const uint8_t* panel, int b, PairedBlock<P>& block) {
  PrefetchLines(panel + PackedOffset(Format::kDType, b) + kPrefetchBytes,
                PackedBlockBytes(Format::kDType));
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    DecodedBlock<P> decoded;
    Format::Decode(panel, b, half, decoded);
    block.halves[half] = decoded;
    if constexpr (Format::kHasHalfScales) {
      block.scale_words[half][0] = P::Twice(decoded.half_scales[0]);
      block.scale_words[half][1] = P::Twice(decoded.half_scales[1]);
    }
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; ++q) {
      if constexpr (kIsWide<Format>) {
        block.quads[half][q][1] = P::Centred(decoded.quads[q]);
        block.quads[half][q][0] = P::Magnitudes(block.quads[half][q][1]);
      } else {
        block.quads[0][q][half] = decoded.quads[q];
      }
    }
  }
}

// The sums of kCount quads of kRows rows, from quad `first` on.
template <class P, int kCount, int kRows>
VITRINE_INLINE void SumPairs(const typename P::Bytes (*quads)[2], const ActivationRow* rows,
                             int first, typename P::Words (*sums)[2]) {
#pragma GCC unroll 8
  for (int q = first; q < first + kCount; ++q) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const auto values = P::BroadcastQuad(rows[r].values + 4 * q);
#pragma GCC unroll 2
      for (int p = 0; p < 2; ++p) {
        const auto words = P::MulPairs(quads[q][p], values);
        sums[r][p] = q == first ? words : P::AddWords(sums[r][p], words);
        P::Keep(sums[r][p]);
      }
    }
  }
}

// Where the integer sum of a row starts, with the scales of the halves of the columns in it.
template <class P, class Format>
VITRINE_INLINE typename P::I StartPaired(const BlockScales<P>& weights, const ActivationRow& row) {
  if constexpr (Format::kHasHalfScales && Format::kOffset != 0) {
    return P::AddI(P::MulI(weights.half_scales[0], StartHalfSum<P, Format, 0>(row)),
                   P::MulI(weights.half_scales[1], StartHalfSum<P, Format, 1>(row)));
  } else {
    return StartSum<P, Format>(row);
  }
}

// What the sums from `quad` on are multiplied by on their way to 32 bits.
template <class P, class Format>
VITRINE_INLINE typename P::Words FactorOf(const PairedBlock<P>& block, int half, int quad) {
  if constexpr (Format::kHasHalfScales) {
    return block.scale_words[half][quad / (kQuads / 2)];
  } else {
    return P::SetWords(1);
  }
}

template <class P, class Format, int kRows>
VITRINE_INLINE void AddNarrowRows(const PairedBlock<P>& block, const ActivationRow* rows,
                                  float* totals) {
  constexpr int kCount = kRunQuads<Format>;
  typename P::I dots[kRows][2];
#pragma GCC unroll 8
  for (int first = 0; first < kQuads; first += kCount) {
    typename P::Words sums[kRows][2];
    SumPairs<P, kCount, kRows>(block.quads[0], rows, first, sums);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const auto& weights = block.halves[half];
        const auto before = first == 0 ? StartPaired<P, Format>(weights, rows[r]) : dots[r][half];
        dots[r][half] =
            P::AddI(before, P::Widen(sums[r][half], FactorOf<P, Format>(block, half, first)));
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    float* total = totals + kPanelRows * r;
    const auto low = AddScaled<P, Format>(block.halves[0], rows[r], dots[r][0], P::Load(total));
    const auto high =
        AddScaled<P, Format>(block.halves[1], rows[r], dots[r][1], P::Load(total + P::kLanes));
    P::Store(total, low);
    P::Store(total + P::kLanes, high);
  }
}

template <class P, class Format, int kRows>
VITRINE_INLINE void AddWideRows(const PairedBlock<P>& block, const ActivationRow* rows,
                                float* totals) {
  static_assert(!Format::kHasHalfScales && Format::kOffset == 128);
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    typename P::I dots[kRows];
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; ++q) {
      const auto* const quad = block.quads[half][q];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const auto values = P::BroadcastQuad(rows[r].values + 4 * q);
        dots[r] = P::DotSigned(q == 0 ? P::ZeroI() : dots[r], quad[0], quad[1], values);
        P::Keep(dots[r]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      float* total = totals + kPanelRows * r + P::kLanes * half;
      P::Store(total, AddScaled<P, Format>(block.halves[half], rows[r], dots[r], P::Load(total)));
    }
  }
}

template <class P, class Format, int kRows>
VITRINE_INLINE void AddPairedRows(const PairedBlock<P>& block, const ActivationRow* rows,
                                  float* totals) {
  if constexpr (kIsWide<Format>) {
    AddWideRows<P, Format, kRows>(block, rows, totals);
  } else {
    AddNarrowRows<P, Format, kRows>(block, rows, totals);
  }
}

// What the compiler takes for a value, it keeps for the next group of rows, in registers that do
// not exist: every use would be a load of its own.
template <class P>
VITRINE_INLINE void StayInMemory(PairedBlock<P>& block) {
  __asm__ volatile("" : "+m"(block));
}

template <class P, class Format>
VITRINE_INLINE void AddPairedTile(PairedBlock<P>& block, const ActivationRow* rows, int count,
                                  float* totals) {
  // Sixteen registers: sums of 4 rows, or sums in 16 bits of 2 beside their sums in 32.
  constexpr int kRows = kIsWide<Format> || kRunQuads<Format> == kQuads ? 4 : 2;
  int r = 0;
  const auto add = [&]<int kCount>() VITRINE_LAMBDA_INLINE {
    StayInMemory(block);
    AddPairedRows<P, Format, kCount>(block, rows + r, totals + kPanelRows * r);
    r += kCount;
  };
#pragma GCC unroll 1
  while (r + kRows <= count) add.template operator()<kRows>();
  if (kRows > 2 && r + 2 <= count) add.template operator()<2>();
  if (r < count) add.template operator()<1>();
}

template <class P, template <class> class FormatOf, bool kIsLone>
void PairedProduct(const uint8_t* panel, int blocks, const ActivationBlock* tile, int rows,
                   float* products) {
  using Format = FormatOf<P>;
  for (int i = 0; i < rows * kPanelRows; i += P::kLanes) P::Store(products + i, P::Zero());
  for (int b = 0; b < blocks; ++b) {
    PairedBlock<P> block;
    DecodePaired<P, Format>(panel, b, block);
    if constexpr (kIsLone) {
      AddPairedRows<P, Format, 1>(block, tile[b].rows, products);
    } else {
      AddPairedTile<P, Format>(block, tile[b].rows, rows, products);
    }
  }
}

template <class P, template <class> class Format>
void FillPairedKernels(KernelTable& table) {
  auto& kernels = table.integer_kernels[static_cast<size_t>(Format<P>::kDType)];
  kernels[1] = PairedProduct<P, Format, true>;
  for (size_t rows = 2; rows <= kTileRows; ++rows) kernels[rows] = PairedProduct<P, Format, false>;
}

}  // namespace vitrine::cpu
