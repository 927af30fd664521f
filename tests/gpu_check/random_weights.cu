#include "kernels/cuda/launch.h"
#include "kernels/dtype.h"
#include "kernels/philox.h"
#include "tests/cuda_emulator/device_array.h"
#include "tests/gpu_check/random_weights.h"

namespace vitrine::gpu_check {
namespace {

constexpr int kThreads = 256, kMostBlocks = 8192;
constexpr uint64_t kSeed = 8;
constexpr int kGroupRows = 8;

// The bits of the weights from `kWeightsPerDraw` * `draw` on, 16 each.
__host__ __device__ uint64_t BitsOf(int64_t draw) { return RandomBits(kSeed, draw, 0); }

// `scale`: of a uniform integer of 16 bits with sign.
__host__ __device__ float WeightOf(uint64_t bits, int index, float scale) {
  return static_cast<float>(static_cast<int16_t>(bits >> (16 * index) & 0xffffu)) * scale;
}

float ScaleOf(float deviation) {
  constexpr float kUniformDeviation = 18918.6f;  // 2^15 / sqrt(3)
  return deviation / kUniformDeviation;
}

__global__ void __launch_bounds__(kThreads) FillRandomRowsKernel(RandomRows p, float scale) {
  const int64_t draws = int64_t{p.rows} * p.columns / kWeightsPerDraw;
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < draws; i += stride) {
    const int64_t at = i * kWeightsPerDraw;
    const auto row = static_cast<int>(at / p.columns);
    const int place = p.is_interleaved ? row / kGroupRows * 2 * kGroupRows + row % kGroupRows : row;
    const uint64_t bits = BitsOf(p.first / kWeightsPerDraw + i);
    __nv_bfloat16* const target =
        p.matrix + int64_t{p.first_row + place} * p.columns + at % p.columns;
    GPU_UNROLL
    for (int w = 0; w < kWeightsPerDraw; ++w) {
      target[w] = __float2bfloat16_rn(WeightOf(bits, w, scale));
    }
  }
}

}  // namespace

std::vector<uint16_t> RandomWeights(size_t count, float deviation) {
  const float scale = ScaleOf(deviation);
  std::vector<uint16_t> weights(count);
  uint64_t bits = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto index = static_cast<int>(i % kWeightsPerDraw);
    if (index == 0) bits = BitsOf(static_cast<int64_t>(i / kWeightsPerDraw));
    weights[i] = Bf16FromFloat(WeightOf(bits, index, scale));
  }
  return weights;
}

void FillRandomRows(const RandomRows& rows) {
  const int64_t draws = int64_t{rows.rows} * rows.columns / kWeightsPerDraw;
  const int64_t blocks = (draws + kThreads - 1) / kThreads;
  gpu::CheckCuda(gpu::Launch(
      &FillRandomRowsKernel,
      {dim3(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks)), dim3(kThreads)},
      rows, ScaleOf(rows.deviation)));
}

}  // namespace vitrine::gpu_check
