// ldmatrix and mma.sync. Fragment layouts follow the PTX ISA manual.
#pragma once
#include <cstdint>

#include "cuda_emulator/options.h"
#include "cuda_emulator/stop.h"

namespace vitrine::emu {

// ldmatrix.x4: `row` is the calling lane's 16-byte row (lane i: row i % 8 of matrix i / 8).
void LdMatrixX4(uint32_t (&r)[4], const void* row, bool transpose, Site site);
// mma.m16n8k16 with bf16 or fp16 inputs and f32 accumulators.
void MmaBf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Site site);
void MmaFp16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Site site);

}  // namespace vitrine::emu
