#include "kernels/cpu/kernel_table.h"

#if defined(__AVX512VNNI__) && defined(__AVX512BF16__)

#include "kernels/cpu/avx512_simd.h"
#include "kernels/cpu/kernel_table_simd.h"
#include "kernels/cpu/matrix_kernels.h"

namespace vitrine::cpu {
namespace {

// From registers alone: the generic loop reads its operands again for every product, which halves
// the rate here.
double RunVnniProducts(int64_t loops) {
  constexpr int kChains = 8;
  __m512i sums[kChains] = {};
  for (__m512i& sum : sums) __asm__ volatile("" : "+v"(sum));  // Else equal chains are merged.
  __m512i left = _mm512_set1_epi8(3);
  const __m512i right = _mm512_set1_epi8(5);
  for (int64_t i = 0; i < loops; ++i) {
    __asm__ volatile("" : "+v"(left));
#pragma GCC unroll 8
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, left, right);
  }
  for (__m512i& sum : sums) __asm__ volatile("" : "+v"(sum));
  constexpr double kOpsPerInstruction = 2 * 64;
  return kOpsPerInstruction * kChains * static_cast<double>(loops);
}

KernelTable MakeTable() {
  KernelTable table = MakeKernelTable<Avx512>("avx512", FillAvx512MatrixKernels);
  table.integer_burst = RunVnniProducts;
  return table;
}

}  // namespace

const KernelTable* Avx512Kernels() {
  static const KernelTable table = MakeTable();
  return &table;
}

}  // namespace vitrine::cpu

#else

namespace vitrine::cpu {

const KernelTable* Avx512Kernels() { return nullptr; }

}  // namespace vitrine::cpu

#endif
