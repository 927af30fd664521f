// Host-side packing of weights into the layouts of device_weights.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/device_weights.h"
#include "kernels/dtype.h"

namespace vitrine::cuda {

// One row of a file's tensor; `data` null: a row of zeros.
struct SourceRow {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
};

struct HostWeights {
  WeightFormat format = WeightFormat::kBF16;
  int rows = 0;
  int columns = 0;  // As DeviceWeights: with padding.
  std::vector<std::byte> values;
  std::vector<uint16_t> scales;  // f16 bits
  std::vector<uint16_t> minima;  // f16 bits
};

// The format that holds rows of these types. Types without a format of their own are stored as
// F16, mixtures as the widest. All rows must lie within what F16 holds where that is the format.
WeightFormat FormatFor(std::span<const DType> dtypes);

HostWeights PackRows(WeightFormat format, std::span<const SourceRow> rows, int64_t columns);

// Gate and up rows for a gated product: groups of eight gates and their eight ups, the last group
// filled with rows of zeros.
std::vector<SourceRow> InterleaveGateUp(std::span<const SourceRow> gate,
                                        std::span<const SourceRow> up);

// Whether a finite f32 value overflows F16, which would turn a weight into an infinity.
bool FitsF16(std::span<const SourceRow> rows, int64_t columns);

}  // namespace vitrine::cuda
