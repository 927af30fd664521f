#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/sample.h"

namespace vitrine::cuda {

// Sample of kernels/sample.h, with the rows in device memory: the token that SampleToken() of
// kernels/sampling_math.h draws, bit for bit.
struct SampleParams {
  const float* logits = nullptr;    // [count, vocabulary]
  const float* adjusted = nullptr;  // [adjusted rows, vocabulary]
  const SampleRow* rows = nullptr;  // [count]
  int32_t* token_ids = nullptr;     // [count]
  int count = 0;
  int vocabulary = 0;
};
void Sample(const SampleParams& params, cudaStream_t stream);

}  // namespace vitrine::cuda
