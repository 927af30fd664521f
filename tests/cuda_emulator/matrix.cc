#include "cuda_emulator/matrix.h"

#include <cuda_fp16.h>

#include <cstring>

#include "cuda_emulator/collectives.h"
#include "cuda_emulator/sanitizer.h"

namespace vitrine::emu {
namespace {

constexpr unsigned kAllLanes = ~0u;

struct LdMatrixArgs {
  uint16_t row[8];
  uint32_t out[4];
};

// Every lane receives one pair of elements of each matrix.
template <bool kTranspose>
void DealMatrices(unsigned lanes, void* const* args) {
  if (lanes != kAllLanes) Fail("ldmatrix with lanes missing");
  for (int l = 0; l < 32; ++l) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      uint16_t pair[2];
      for (int k = 0; k < 2; ++k) {
        const int row = kTranspose ? l % 4 * 2 + k : l / 4;
        const int col = kTranspose ? l / 4 : l % 4 * 2 + k;
        pair[k] = static_cast<LdMatrixArgs*>(args[matrix * 8 + row])->row[col];
      }
      memcpy(&static_cast<LdMatrixArgs*>(args[l])->out[matrix], pair, sizeof pair);
    }
  }
}

struct Bf16 {
  static float ToFloat(uint16_t bits) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
  }
};
struct Fp16 {
  static float ToFloat(uint16_t bits) { return __half2float(__builtin_bit_cast(__half, bits)); }
};

struct MmaArgs {
  uint32_t a[4], b[2];
  float d[4];
};

template <class Format>
float Half(uint32_t packed, int i) {
  return Format::ToFloat(static_cast<uint16_t>(packed >> (16 * i)));
}

// Layout of mma.m16n8k16: group = lane / 4 is the row of A and D and the column of B; quad =
// lane % 4 selects pairs along K (A, B) or N (D).
template <class Format>
void MultiplyTiles(unsigned lanes, void* const* args) {
  if (lanes != kAllLanes) Fail("mma.sync with lanes missing");
  float a[16][16], b[8][16];
  for (int l = 0; l < 32; ++l) {
    const auto& x = *static_cast<MmaArgs*>(args[l]);
    const int group = l / 4, k0 = l % 4 * 2;
    for (int e = 0; e < 2; ++e) {
      for (int r = 0; r < 4; ++r) {
        a[group + r % 2 * 8][k0 + r / 2 * 8 + e] = Half<Format>(x.a[r], e);
      }
      for (int r = 0; r < 2; ++r) b[group][k0 + r * 8 + e] = Half<Format>(x.b[r], e);
    }
  }
  for (int l = 0; l < 32; ++l) {
    auto& x = *static_cast<MmaArgs*>(args[l]);
    for (int i = 0; i < 4; ++i) {
      const float* row = a[l / 4 + i / 2 * 8];
      const float* col = b[l % 4 * 2 + i % 2];
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += row[k] * col[k];
      x.d[i] += sum;
    }
  }
}

template <class Format>
void Mma(const char* name, float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
         Site site) {
  MmaArgs x{{a[0], a[1], a[2], a[3]}, {b0, b1}, {d[0], d[1], d[2], d[3]}};
  WarpCollective(name, kAllLanes, &x, &MultiplyTiles<Format>, site);
  for (int i = 0; i < 4; ++i) d[i] = x.d[i];
}

}  // namespace

void LdMatrixX4(uint32_t (&r)[4], const void* row, bool transpose, Site site) {
  if (reinterpret_cast<uintptr_t>(row) % 16 != 0) Fail("ldmatrix with a misaligned row", site);
  LdMatrixArgs a{};
  // Read in the lane that supplied the address, so that a race or overflow is blamed on it.
  __tsan_read_range(const_cast<void*>(row), sizeof a.row);
  memcpy(a.row, row, sizeof a.row);
  if (transpose) {
    WarpCollective("ldmatrix.trans", kAllLanes, &a, &DealMatrices<true>, site);
  } else {
    WarpCollective("ldmatrix", kAllLanes, &a, &DealMatrices<false>, site);
  }
  memcpy(r, a.out, sizeof a.out);
}

void MmaBf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Site site) {
  Mma<Bf16>("mma.sync.bf16", d, a, b0, b1, site);
}
void MmaFp16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Site site) {
  Mma<Fp16>("mma.sync.f16", d, a, b0, b1, site);
}

}  // namespace vitrine::emu
