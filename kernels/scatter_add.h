#pragma once

#include <cstdint>
#include <span>

#include "kernels/device_span.h"

namespace vitrine {

// output[row_ids[i]] += scales[i] * input[i], product and sum rounded each. No id comes twice.
// What the experts of a mixture return to the rows that chose them (Shazeer et al., 2017). Which
// rows those are is known to the host, so backends that record steps have no such op.
struct ScatterAddArgs {
  DeviceSpan<const float> input;     // [n, columns]
  std::span<const int32_t> row_ids;  // [n], host memory
  std::span<const float> scales;     // [n], host memory
  int columns = 0;
  DeviceSpan<float> output;  // [rows, columns], not `input`
};

}  // namespace vitrine
