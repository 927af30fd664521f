#pragma once

#include <cstdint>
#include <span>

#include "kernels/device_span.h"

namespace vitrine {

// output[i] = input[row_ids[i]]. Input and output do not overlap.
struct GatherRowsArgs {
  DeviceSpan<const float> input;     // [rows, columns]
  std::span<const int32_t> row_ids;  // [n], host memory
  int columns = 0;
  DeviceSpan<float> output;  // [n, columns]
};

}  // namespace vitrine
