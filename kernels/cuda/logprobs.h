#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/sample.h"
#include "kernels/logprobs.h"

namespace vitrine::cuda {

// Logprobs of kernels/logprobs.h, with what is host memory there in device memory.
struct LogprobsParams {
  const float* logits = nullptr;        // [logit rows, vocabulary]
  const float* adjusted = nullptr;      // [adjusted rows, vocabulary]
  const SampleRow* sampling = nullptr;  // [logit rows]
  const int32_t* token_ids = nullptr;   // [logit rows]
  const LogprobsRow* rows = nullptr;    // [count]
  RowSearch* searches = nullptr;        // [count], any contents
  LogprobsResult* output = nullptr;     // [count]
  int count = 0;
  int vocabulary = 0;
  int passes = 0;  // The largest SearchPasses of a row that is processed; at least 1.
};
void Logprobs(const LogprobsParams& params, cudaStream_t stream);

}  // namespace vitrine::cuda
