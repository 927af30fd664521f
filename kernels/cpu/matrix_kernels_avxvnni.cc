// The matrix kernels of processors that have VNNI for 256 bits but no AVX-512; all else is AVX2's.
#include "kernels/cpu/kernel_table.h"

#if defined(__AVXVNNI__) && defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "kernels/cpu/avx2_simd.h"
#include "kernels/cpu/calibration_simd.h"
#include "kernels/cpu/matrix_kernels_simd.h"

namespace vitrine::cpu {
namespace {

struct AvxVnniPanel : Avx2Panel {
  static constexpr bool kAddsInPairs = false;
  // A decoded block takes 8 of the 16 registers, and one product needs no other.
  static constexpr int kRowsInFlight = 4;
  static constexpr int kRegisterRows = 2;
  static constexpr bool kTakesTwoPanels = false;

  static VITRINE_INLINE I Dot(I acc, Bytes weights, const int8_t* quad) {
    return AddProducts(acc, weights, BroadcastQuad(quad));
  }
  static VITRINE_INLINE I AddProducts(I acc, Bytes weights, Bytes values) {
    return _mm256_dpbusd_avx_epi32(acc, weights, values);
  }
  static VITRINE_INLINE I DotWide(I acc, Bytes weights, const int8_t* quad) {
    return Dot(acc, weights, quad);
  }
};

KernelTable MakeTable() {
  KernelTable table = *Avx2Kernels();
  table.name = "avxvnni";
  table.integer_burst = RunIntegerProducts<AvxVnniPanel>;
  FillMatrixKernels<AvxVnniPanel>(table);
  return table;
}

}  // namespace

const KernelTable* AvxVnniKernels() {
  static const KernelTable table = MakeTable();
  return &table;
}

}  // namespace vitrine::cpu

#else

namespace vitrine::cpu {

const KernelTable* AvxVnniKernels() { return nullptr; }

}  // namespace vitrine::cpu

#endif
