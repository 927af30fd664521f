// What the blocks of 256 columns of the K types hold, field by field.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace vitrine::cpu {

struct QuantFields {
  uint8_t quants[256];   // As stored: not yet less the type's offset.
  uint8_t scales[16];    // One per 16 columns, or per 32 in the first 8; two's complement.
  uint8_t minimums[8];   // One per 32 columns: Q4_K and Q5_K.
  uint16_t scale = 0;    // fp16, of the scales.
  uint16_t minimum = 0;  // fp16, of the minimums.
};

// `dtype` is a type with blocks of 256 columns. The layouts are those of the GGUF specification.
// In Q2_K a scale byte holds the minimum in its upper half.
void ReadQuantFields(DType dtype, const std::byte* block, QuantFields& fields);

}  // namespace vitrine::cpu
