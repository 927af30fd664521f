// Embedding lookup, one block per row. Bound: rows * columns * (4 + weight) bytes; launch-bound.
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/embed.h"
#include "kernels/cuda/launch.h"
#include "kernels/embed.h"

namespace vitrine::cuda {
namespace {

constexpr int kThreads = 128;

__device__ inline float QuantValue(const DeviceWeights& m, int row, int column) {
  const size_t chunk = static_cast<size_t>(row) * m.QuantChunks() + column / kQuantChunkColumns;
  const int block = column % kQuantChunkColumns / kBlockColumns, i = column % kBlockColumns;
  const auto* bytes = static_cast<const uint8_t*>(m.values);
  const float scale = __half2float(m.scales[chunk * kQuantChunkBlocks + block]);
  if (m.format == WeightFormat::kQ8_0) {
    const uint8_t bits = bytes[chunk * kQuantChunkColumns + Q8Position(block, i)];
    return scale * static_cast<float>(static_cast<int8_t>(bits));
  }
  const int at = Q4Position(block, i);
  const int quant = bytes[chunk * (kQuantChunkColumns / 2) + at / 2] >> (at % 2 * 4) & 0xf;
  if (m.format == WeightFormat::kQ4_0) return scale * static_cast<float>(quant - 8);
  const float minimum = __half2float(m.minima[chunk * kQuantChunkBlocks + block]);
  return scale * static_cast<float>(quant) + minimum;
}

__device__ inline float WeightValue(const DeviceWeights& m, int row, int column) {
  const size_t at = static_cast<size_t>(row) * m.columns + column;
  switch (m.format) {
    case WeightFormat::kBF16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(m.values)[at]);
    case WeightFormat::kF16:
      return __half2float(static_cast<const __half*>(m.values)[at]);
    case WeightFormat::kF32Columns:
      return static_cast<const float*>(m.values)[static_cast<size_t>(column) * m.rows + row];
    default:
      return QuantValue(m, row, column);
  }
}

__global__ void __launch_bounds__(kThreads) EmbedKernel(EmbedParams p) {
  const int token = TokenOf(p.token_ids[blockIdx.x], p.drawn) - p.first_token;
  if (token < 0 || token >= p.table.rows) return;
  const float* learned = nullptr;
  if (p.position_table != nullptr) {
    const int position = PlaceOf(p.batch, static_cast<int>(blockIdx.x)).position;
    learned = p.position_table + static_cast<size_t>(position) * p.columns;
  }
  float* output = p.output + static_cast<size_t>(blockIdx.x) * p.columns;
  for (int c = static_cast<int>(threadIdx.x); c < p.columns; c += kThreads) {
    const float value = p.scale * WeightValue(p.table, token, c);
    output[c] = learned == nullptr ? value : value + learned[c];
  }
}

}  // namespace

void Embed(const EmbedParams& params, cudaStream_t stream) {
  if (params.rows == 0) return;
  CheckCuda(gpu::Launch(
      &EmbedKernel,
      {.grid = dim3(static_cast<unsigned>(params.rows)), .block = dim3(kThreads), .stream = stream},
      params));
}

}  // namespace vitrine::cuda
