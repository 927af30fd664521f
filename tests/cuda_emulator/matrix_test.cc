#include "cuda_emulator/matrix.h"

#include <array>
#include <cstring>
#include <vector>

#include "cuda_emulator/run_kernel.h"
#include "kernels/cuda/ptx.h"

namespace vitrine::emu {
namespace {

// Rows as the PTX manual draws them: thread T holds elements 2*(T%4), +1 of row T/4.
TEST(LdMatrixTest, DealsRowPairs) {
  int wrong = 0;
  RunKernel(1, 32, [&] {
    GPU_SHARED(tile, uint4[32]);
    auto* rows = reinterpret_cast<uint16_t (*)[8]>(&tile[0]);
    for (int c = 0; c < 8; ++c) rows[threadIdx.x][c] = uint16_t(threadIdx.x * 8 + c);
    __syncwarp();
    uint32_t r[4];
    gpu::LdMatrixX4(r, rows[threadIdx.x]);
    for (unsigned m = 0; m < 4; ++m) {
      const unsigned first = (m * 8 + threadIdx.x / 4) * 8 + threadIdx.x % 4 * 2;
      wrong += r[m] != (first | (first + 1) << 16);
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(LdMatrixTest, TransposedDealsColumnPairs) {
  int wrong = 0;
  RunKernel(1, 32, [&] {
    GPU_SHARED(tile, uint4[32]);
    auto* rows = reinterpret_cast<uint16_t (*)[8]>(&tile[0]);
    for (int c = 0; c < 8; ++c) rows[threadIdx.x][c] = uint16_t(threadIdx.x * 8 + c);
    __syncwarp();
    uint32_t r[4];
    gpu::LdMatrixX4Trans(r, rows[threadIdx.x]);
    for (unsigned m = 0; m < 4; ++m) {
      const unsigned row = m * 8 + threadIdx.x % 4 * 2, col = threadIdx.x / 4;
      wrong += r[m] != ((row * 8 + col) | ((row + 1) * 8 + col) << 16);
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(LdMatrixTest, StopsOnMisalignedRows) {
  EXPECT_STOPS(32, "misaligned", [] {
    GPU_SHARED(tile, uint4[40]);
    uint32_t r[4];
    gpu::LdMatrixX4(r, reinterpret_cast<unsigned char*>(&tile[0]) + threadIdx.x * 16 + 4);
  });
}

TEST(MmaTest, StopsWithLanesMissing) {
  const ScopedOptions restore;
  options().strict_masks = false;
  EXPECT_STOPS(31, "lanes missing", [] {
    float d[4] = {};
    const uint32_t a[4] = {};
    gpu::MmaBf16(d, a, 0, 0);
  });
}

// Small integers are exact, so the result must be too.
TEST(MmaTest, MultipliesSmallIntegersExactly) {
  std::array<std::array<float, 16>, 16> a{};
  std::array<std::array<float, 8>, 16> b{};
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) a[i][k] = static_cast<float>((i * 7 + k * 3) % 11 - 5);
    for (int n = 0; n < 8; ++n) b[i][n] = static_cast<float>((i * 5 + n * 9) % 13 - 6);
  }
  std::array<std::array<float, 8>, 16> d{};
  RunKernel(1, 32, [&] {
    const int g = threadIdx.x / 4, q = threadIdx.x % 4 * 2;
    const uint32_t fa[4] = {
        gpu::PackBf16(a[g][q], a[g][q + 1]), gpu::PackBf16(a[g + 8][q], a[g + 8][q + 1]),
        gpu::PackBf16(a[g][q + 8], a[g][q + 9]), gpu::PackBf16(a[g + 8][q + 8], a[g + 8][q + 9])};
    float acc[4] = {1, 1, 1, 1};
    gpu::MmaBf16(acc, fa, gpu::PackBf16(b[q][g], b[q + 1][g]),
                 gpu::PackBf16(b[q + 8][g], b[q + 9][g]));
    for (int i = 0; i < 4; ++i) d[g + i / 2 * 8][q + i % 2] = acc[i];
  });
  for (int i = 0; i < 16; ++i) {
    for (int n = 0; n < 8; ++n) {
      float want = 1;
      for (int k = 0; k < 16; ++k) want += a[i][k] * b[k][n];
      EXPECT_EQ(d[i][n], want) << i << "," << n;
    }
  }
}

TEST(MmaTest, Fp16DiffersFromBf16InFormatOnly) {
  float sum = 0;
  RunKernel(1, 32, [&] {
    const __half2 ones = __floats2half2_rn(1, 1);
    uint32_t bits;
    memcpy(&bits, &ones, 4);
    float d[4] = {};
    const uint32_t a[4] = {bits, bits, bits, bits};
    MmaFp16(d, a, bits, bits, Here());
    sum = d[0];
  });
  EXPECT_EQ(sum, 16.0f);
}

}  // namespace
}  // namespace vitrine::emu
