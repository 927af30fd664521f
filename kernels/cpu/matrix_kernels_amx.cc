// The integer matrix kernels of 5 and more rows on AMX. One instruction multiplies a decoded block
// with all rows of an activation tile:
//
//   TDPBSSD  sums[row][lane] += values[row][4q..4q+3] . quads[q][lane][0..3]    for 8 quads q
//
// ActivationBlock and DecodedBlock lie in memory as its operands want them. The sums of a block are
// exact and the rest is AVX-512's own AddScaled, so results are equal bit for bit.
//
// Sums have to go through memory to meet their scales. So that nobody waits for them, the scales of
// a block are applied while the tile unit is busy with the next one.
#include "kernels/cpu/kernel_table.h"

#if defined(__AMX_INT8__) && defined(__AVX512VNNI__) && defined(__AVX512BF16__)

#include "kernels/cpu/avx512_simd.h"
#include "kernels/cpu/matrix_kernels_simd.h"

namespace vitrine::cpu {
namespace {

using P = Avx512;

// Tile registers by what they hold. 12 rows take the tiles of 16.
enum Tile { kSums, kHighSums, kRows16, kQuads8, kSums8, kRows8, kHalfRows, kHalfQuads };

// The operand of LDTILECFG.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {64, 64, 32, 64, 64, 32, 16, 64};
  uint8_t rows[16] = {16, 16, 16, 8, 8, 8, 16, 4};
};
static_assert(sizeof(TileShapes) == 64);

// The compilers' own functions for tiles are macros that want literals, and GCC's loads do not say
// that they read memory.
void ConfigureTiles() {
  static constexpr TileShapes kShapes;
  __asm__ volatile("ldtilecfg %0" ::"m"(kShapes));
}
void ReleaseTiles() { __asm__ volatile("tilerelease"); }

template <Tile kTile>
VITRINE_INLINE void Clear() {
  __asm__ volatile("tilezero %%tmm%c0" ::"i"(kTile));
}
template <Tile kTile>
VITRINE_INLINE void Load(const void* rows, int64_t stride) {
  __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(kTile), "r"(rows), "r"(stride) : "memory");
}
template <Tile kTile>
VITRINE_INLINE void Store(void* rows, int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(kTile), "r"(rows), "r"(stride)
                   : "memory");
}
// to += left * right
template <Tile kTo, Tile kLeft, Tile kRight>
VITRINE_INLINE void Multiply() {
  __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kTo), "i"(kLeft), "i"(kRight));
}

template <Tile kTo, Tile kLeft, Tile kRight>
VITRINE_INLINE void TileSums(const int8_t* rows, const uint8_t* quads,
                             int32_t (&sums)[kTileRows][kPanelRows]) {
  Load<kLeft>(rows, sizeof(ActivationRow));
  Load<kRight>(quads, 64);
  Clear<kTo>();
  Multiply<kTo, kLeft, kRight>();
  Store<kTo>(sums, 64);
}

struct BlockSums {
  alignas(64) int32_t low[kTileRows][kPanelRows];
  alignas(64) int32_t high[kTileRows][kPanelRows];  // Of the second half; only with half scales.
};

// Weights are unsigned with an offset for VNNI; here both sides are signed.
template <class Format>
VITRINE_INLINE void StoreQuads(const DecodedBlock<P>& block, uint8_t* quads) {
#pragma GCC unroll 8
  for (int q = 0; q < kQuads; ++q) {
    P::Bytes quad = block.quads[q];
    if constexpr (Format::kOffset != 0) {
      quad = _mm512_sub_epi8(quad, _mm512_set1_epi8(static_cast<char>(Format::kOffset)));
    }
    _mm512_store_si512(quads + 64 * q, quad);
  }
}

template <class Format, int kCount>
VITRINE_INLINE void MultiplyBlock(const ActivationBlock& block, const uint8_t* quads,
                                  BlockSums& sums) {
  const int8_t* rows = block.rows[0].values;
  if constexpr (Format::kHasHalfScales) {
    TileSums<kSums, kHalfRows, kHalfQuads>(rows, quads, sums.low);
    TileSums<kHighSums, kHalfRows, kHalfQuads>(rows + kBlockColumns / 2, quads + 64 * kQuads / 2,
                                               sums.high);
  } else if constexpr (kCount <= 8) {
    TileSums<kSums8, kRows8, kQuads8>(rows, quads, sums.low);
  } else {
    TileSums<kSums, kRows16, kQuads8>(rows, quads, sums.low);
  }
}

// Row by row as an expression, not a loop: loops over 16 totals leave them in memory.
template <class Format, size_t... kRow>
VITRINE_INLINE void AddBlock(const DecodedBlock<P>& weights, const ActivationBlock& rows,
                             const BlockSums& sums, P::F* totals, std::index_sequence<kRow...>) {
  const auto dot = [&](size_t r) VITRINE_LAMBDA_INLINE {
    const P::I low = _mm512_load_si512(sums.low[r]);
    if constexpr (!Format::kHasHalfScales) return low;
    return P::AddI(P::MulI(low, weights.half_scales[0]),
                   P::MulI(_mm512_load_si512(sums.high[r]), weights.half_scales[1]));
  };
  ((totals[kRow] = AddScaled<P, Format>(weights, rows.rows[kRow], dot(kRow), totals[kRow])), ...);
}

// kCount: 8, 12 or 16, of which the first `rows` are wanted.
template <template <class> class Format, int kCount>
void TileProduct(const uint8_t* panel, int blocks, const ActivationBlock* tile, int /*rows*/,
                 float* products) {
  using F = Format<P>;
  alignas(64) uint8_t quads[2][64 * kQuads];
  BlockSums sums[2];
  constexpr auto kEveryRow = std::make_index_sequence<kCount>();
  P::F totals[kCount];
  const auto every_row = [&](auto visit) VITRINE_LAMBDA_INLINE {
    [&]<size_t... kRow>(std::index_sequence<kRow...>)
        VITRINE_LAMBDA_INLINE { (visit(kRow, totals[kRow]), ...); }(kEveryRow);
  };
  every_row([](size_t, P::F& total) VITRINE_LAMBDA_INLINE { total = P::Zero(); });

  DecodedBlock<P> before, weights;
  DecodeAndFetch<P, F>(panel, 0, 0, weights);
  StoreQuads<F>(weights, quads[0]);
  for (int b = 0; b < blocks; ++b) {
    MultiplyBlock<F, kCount>(tile[b], quads[b % 2], sums[b % 2]);
    if (b > 0) AddBlock<F>(before, tile[b - 1], sums[(b - 1) % 2], totals, kEveryRow);
    before = weights;
    if (b + 1 == blocks) break;
    DecodeAndFetch<P, F>(panel, b + 1, 0, weights);
    StoreQuads<F>(weights, quads[(b + 1) % 2]);
  }
  AddBlock<F>(before, tile[blocks - 1], sums[(blocks - 1) % 2], totals, kEveryRow);
  every_row([&](size_t row, P::F total)
                VITRINE_LAMBDA_INLINE { P::Store(products + kPanelRows * row, total); });
}

template <template <class> class Format>
void FillTileKernels(KernelTable& table) {
  auto& kernels = table.integer_kernels[static_cast<size_t>(Format<P>::kDType)];
  for (size_t rows = 5; rows <= 8; ++rows) kernels[rows] = TileProduct<Format, 8>;
  for (size_t rows = 9; rows <= 12; ++rows) kernels[rows] = TileProduct<Format, 12>;
  for (size_t rows = 13; rows <= kTileRows; ++rows) kernels[rows] = TileProduct<Format, kTileRows>;
}

KernelTable MakeTable() {
  KernelTable table = *Avx512Kernels();
  table.name = "amx";
  table.enter_step = ConfigureTiles;
  table.leave_step = ReleaseTiles;
  FillTileKernels<Q4_0Format>(table);
  FillTileKernels<Q4_1Format>(table);
  FillTileKernels<Q5_0Format>(table);
  FillTileKernels<Q5_1Format>(table);
  FillTileKernels<Q8_0Format>(table);
  FillTileKernels<Q2KFormat>(table);
  FillTileKernels<Q3KFormat>(table);
  FillTileKernels<Q4KFormat>(table);
  FillTileKernels<Q5KFormat>(table);
  FillTileKernels<Q6KFormat>(table);
  FillTileKernels<Iq4NlFormat>(table);
  FillTileKernels<Iq4XsFormat>(table);
  return table;
}

}  // namespace

const KernelTable* AmxKernels() {
  static const KernelTable table = MakeTable();
  return &table;
}

}  // namespace vitrine::cpu

#else

namespace vitrine::cpu {

const KernelTable* AmxKernels() { return nullptr; }

}  // namespace vitrine::cpu

#endif
