// Matrices of 8-bit floats, which become F32 when they are loaded: products of two rounded numbers
// that no shorter type holds.
#pragma once

#include <cstdint>

#include "model/tensor_map.h"

namespace vitrine {

// F8_E4M3: a sign, four bits of exponent with bias 7, three of mantissa; no infinity, NaN where all
// seven bits are set (OCP 8-bit floating point specification, 2023, section 5.1).
float FloatFromE4M3(uint8_t bits);

// F8_E5M2: the upper byte of a half: five bits of exponent with bias 15, two of mantissa,
// infinities and NaNs as in IEEE 754.
float FloatFromE5M2(uint8_t bits);

// Row `index` of a view with scales, scaled; `values` has view.columns elements.
void DecodeFp8Row(const WeightView& view, int64_t index, float* values);

}  // namespace vitrine
