#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/adjust_logits.h"

namespace vitrine::cuda {

// A list in device memory.
template <class T>
struct DeviceList {
  const T* data = nullptr;
  int size = 0;
};

// LogitAdjustment of kernels/adjust_logits.h with its lists in device memory.
struct DeviceAdjustment {
  int32_t row = 0;
  DeviceList<TokenBias> biases;
  DeviceList<int32_t> allowed;
  DeviceList<int32_t> banned;
  DeviceList<int32_t> withheld;
  DeviceList<SeenToken> seen;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
};

struct AdjustLogitsParams {
  const float* logits = nullptr;                  // [rows, vocabulary]
  const DeviceAdjustment* adjustments = nullptr;  // [count]
  float* output = nullptr;                        // [count, vocabulary]
  int count = 0;
  int vocabulary = 0;
};
void AdjustLogits(const AdjustLogitsParams& params, cudaStream_t stream);

}  // namespace vitrine::cuda
