// The integer matrix kernels of more than 8 rows on AMX. One instruction multiplies a decoded block
// with all rows of an activation tile:
//
//   TDPBSSD  sums[row][lane] += values[row][4q..4q+3] . quads[q][lane][0..3]    for 8 quads q
//
// ActivationBlock and DecodedBlock lie in memory as its operands want them. The sums of a block are
// exact and the rest is AVX-512's own AddScaled, so results are equal bit for bit.
//
// Up to 8 rows VNNI is as fast, and so it is for types with two scales per block: those keep it.
#include "kernels/cpu/kernel_table.h"

#if defined(__AMX_INT8__) && defined(__AVX512VNNI__) && defined(__AVX512BF16__)

#include "kernels/cpu/avx512_simd.h"
#include "kernels/cpu/matrix_kernels_simd.h"

namespace vitrine::cpu {
namespace {

using P = Avx512;

enum Tile { kSums, kValues, kWeights };

// The operand of LDTILECFG: sums of 16 rows and 16 outputs, 16 rows of 32 values, 8 quads.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {4 * kPanelRows, kBlockColumns, 4 * kPanelRows};
  uint8_t rows[16] = {kTileRows, kTileRows, kQuads};
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

struct BlockSums {
  alignas(64) int32_t rows[kTileRows][kPanelRows];
};

VITRINE_INLINE void MultiplyBlock(const ActivationBlock& block, const P::Bytes* quads,
                                  BlockSums& sums) {
  Load<kValues>(block.rows[0].values, sizeof(ActivationRow));
  Load<kWeights>(quads, sizeof(P::Bytes));
  Clear<kSums>();
  Multiply<kSums, kValues, kWeights>();
  Store<kSums>(sums.rows, sizeof(sums.rows[0]));
}

// Weights are unsigned with an offset for VNNI; here both sides are signed.
template <class Format>
VITRINE_INLINE void DecodeSigned(const uint8_t* panel, int b, DecodedBlock<P>& block) {
  DecodedBlock<P> decoded;
  DecodeAndFetch<P, Format>(panel, b, 0, decoded);
  if constexpr (Format::kOffset != 0) {
#pragma GCC unroll 8
    for (P::Bytes& quad : decoded.quads) {
      quad = _mm512_sub_epi8(quad, _mm512_set1_epi8(static_cast<char>(Format::kOffset)));
    }
  }
  block = decoded;
}

// Row by row as an expression, not a loop: loops over 16 totals leave them in memory.
template <class Format, size_t... kRow>
VITRINE_INLINE void AddBlock(const DecodedBlock<P>& weights, const ActivationBlock& rows,
                             const BlockSums& sums, P::F* totals, std::index_sequence<kRow...>) {
  static_assert(!Format::kHasHalfScales);
  ((totals[kRow] = AddScaled<P, Format>(weights, rows.rows[kRow],
                                        _mm512_load_si512(sums.rows[kRow]), totals[kRow])),
   ...);
}

// A block is decoded this many blocks before its sums are formed, and its scales are applied this
// many later: what went through memory has arrived by then. Without, a block takes 35 ns instead
// of 25.
constexpr int kAhead = 2;
constexpr int kLag = 1;
constexpr int kRing = 4;

// kCount: 12 or 16, of which the first `rows` are wanted.
template <template <class> class Format, int kCount>
void TileProduct(const uint8_t* panel, int blocks, const ActivationBlock* tile, int /*rows*/,
                 float* products) {
  using F = Format<P>;
  DecodedBlock<P> weights[kRing];
  BlockSums sums[kRing];
  constexpr auto kEveryRow = std::make_index_sequence<kCount>();
  P::F totals[kCount];
  const auto every_row = [&](auto visit) VITRINE_LAMBDA_INLINE {
    [&]<size_t... kRow>(std::index_sequence<kRow...>)
        VITRINE_LAMBDA_INLINE { (visit(kRow, totals[kRow]), ...); }(kEveryRow);
  };
  every_row([](size_t, P::F& total) VITRINE_LAMBDA_INLINE { total = P::Zero(); });

  for (int b = 0; b < kAhead && b < blocks; ++b) DecodeSigned<F>(panel, b, weights[b % kRing]);
  for (int b = 0; b < blocks + kLag; ++b) {
    if (b + kAhead < blocks) {
      DecodeSigned<F>(panel, b + kAhead, weights[(b + kAhead) % kRing]);
    }
    if (b < blocks) MultiplyBlock(tile[b], weights[b % kRing].quads, sums[b % kRing]);
    if (b < kLag) continue;
    const int done = b - kLag;
    AddBlock<F>(weights[done % kRing], tile[done], sums[done % kRing], totals, kEveryRow);
  }
  every_row([&](size_t row, P::F total)
                VITRINE_LAMBDA_INLINE { P::Store(products + kPanelRows * row, total); });
}

template <template <class> class Format>
void FillTileKernels(KernelTable& table) {
  auto& kernels = table.integer_kernels[static_cast<size_t>(Format<P>::kDType)];
  for (size_t rows = 9; rows <= 12; ++rows) kernels[rows] = TileProduct<Format, 12>;
  for (size_t rows = 13; rows <= kTileRows; ++rows) kernels[rows] = TileProduct<Format, kTileRows>;
}

KernelTable MakeTable() {
  KernelTable table = *Avx512Kernels();
  table.name = "amx";
  table.enter_step = ConfigureTiles;
  table.leave_step = ReleaseTiles;
  table.pair_kernels = {};  // A tile of rows serves one panel faster than VNNI serves two at once.
  FillTileKernels<Q4_0Format>(table);
  FillTileKernels<Q4_1Format>(table);
  FillTileKernels<Q5_0Format>(table);
  FillTileKernels<Q5_1Format>(table);
  FillTileKernels<Q8_0Format>(table);
  FillTileKernels<Q4KFormat>(table);
  FillTileKernels<Q5KFormat>(table);
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
