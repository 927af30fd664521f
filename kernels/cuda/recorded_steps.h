// CUDA graphs of steps that repeat: one launch instead of hundreds, each of which costs the host
// some microseconds.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "absl/functional/function_ref.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/staging.h"

namespace vitrine::cuda {

class RecordedSteps {
 public:
  RecordedSteps(cudaStream_t stream, Staging& staging) : stream_(stream), staging_(staging) {}

  // See Backend::RunRepeated. The first call with a shape runs as it is, so that modules are loaded
  // and buffers have grown before the second one is recorded.
  void Run(uint64_t shape, absl::FunctionRef<void()> enqueue);

 private:
  struct DestroyGraph {
    void operator()(cudaGraphExec_t graph) const { CheckCuda(cudaGraphExecDestroy(graph)); }
  };
  struct Recording {
    RecordedArrays arrays;
    std::unique_ptr<CUgraphExec_st, DestroyGraph> graph;  // Null: was run once, as it is.
  };

  void Record(Recording& recording, absl::FunctionRef<void()> enqueue);

  const cudaStream_t stream_;
  Staging& staging_;
  std::unordered_map<uint64_t, Recording> recordings_;
};

}  // namespace vitrine::cuda
