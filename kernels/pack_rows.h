#pragma once

#include "kernels/buffer.h"

namespace vitrine {

// output[r] = input[r], in the format that the next matmul reads: the input of a block that is not
// normalised first (OLMo 2).
struct PackRowsArgs {
  DeviceSpan<const float> input;  // [rows, columns]
  int rows = 0;
  RowBuffer* output = nullptr;  // [rows, columns]
};

}  // namespace vitrine
