// The block formats of weight files, decoded in plain code: the definition that packed kernels are
// tested against, and what loading uses for small tensors.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace vitrine {

// Decodes one row of `columns` values (a multiple of the block of `dtype`) into f32. The products
// and sums are those of the GGUF reference decoder, in its order.
void DequantizeRow(DType dtype, const std::byte* row, int64_t columns, float* values);

}  // namespace vitrine
