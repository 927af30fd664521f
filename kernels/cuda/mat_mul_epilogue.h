// What happens to a finished dot product: bias, activation, residual, store.
#pragma once

#include "kernels/cuda/mat_mul.h"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/weight_chunks.h"

namespace vitrine::cuda {

// Calls launch.template operator()<Chunk>() with the chunk type of `format`.
template <class Launch>
void DispatchChunk(WeightFormat format, Launch launch) {
  switch (format) {
    case WeightFormat::kF16:
      return launch.template operator()<F16Chunk>();
    case WeightFormat::kBF16:
      return launch.template operator()<Bf16Chunk>();
    case WeightFormat::kQ8_0:
      return launch.template operator()<Q8Chunk>();
    case WeightFormat::kQ4_0:
      return launch.template operator()<Q4Chunk<false>>();
    case WeightFormat::kQ4_1:
      return launch.template operator()<Q4Chunk<true>>();
    case WeightFormat::kF32Columns:
      break;  // MatMulExact's
  }
  VITRINE_CHECK(false);
}

__device__ inline float Activate(Activation activation, float x) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1.0f + expf(-x));
    case Activation::kGeluErf:
      return 0.5f * x * (1.0f + erff(x * 0.70710678f));
    case Activation::kGeluTanh: {
      const float inner = 0.79788456f * (x + 0.044715f * x * x * x);
      return 0.5f * x * (1.0f + tanhf(inner));
    }
    case Activation::kRelu:
      return fmaxf(x, 0.0f);
    case Activation::kReluSquared:
      return fmaxf(x, 0.0f) * fmaxf(x, 0.0f);
  }
  return x;
}

__device__ inline void StoreProduct(const MatMulParams& p, int row, int output, float value) {
  if (output >= p.outputs) return;
  if (p.bias != nullptr) value += p.bias[output];
  if (p.output == nullptr) {
    p.activated.Store(row, p.first_activated + output, Activate(p.activation, value));
    return;
  }
  value *= p.output_scale;
  if (p.softcap > 0) value = p.softcap * tanhf(value / p.softcap);
  float& target = p.output[static_cast<size_t>(row) * p.output_stride + output];
  target = p.add_to_output ? target + value : value;
}

__device__ inline void StoreGated(const MatMulParams& p, int row, int output, float gate,
                                  float up) {
  if (output >= p.outputs) return;
  if (p.bias != nullptr) {
    gate += p.bias[output];
    up += p.bias[p.outputs + output];
  }
  p.activated.Store(row, p.first_activated + output, Activate(p.activation, gate) * up);
}

}  // namespace vitrine::cuda
