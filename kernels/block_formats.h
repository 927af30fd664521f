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

// Whether QuantizeRow offers `dtype`: the plain floats, Q8_0, Q4_0 and Q4_1.
bool CanQuantize(DType dtype);

// Encodes one row of `columns` finite values (a multiple of the block of `dtype`) with the
// rounding of the GGUF reference encoder. `row` has RowBytes(dtype, columns) bytes.
void QuantizeRow(DType dtype, const float* values, int64_t columns, std::byte* row);

}  // namespace vitrine
