// Sampling without sorting, one block per row. Bound: at most 19 passes over vocabulary * 4 bytes
// from L2 by one SM.
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/sample.h"
#include "kernels/cuda/sample_filter.h"

namespace vitrine::cuda {
namespace {

__device__ inline int Draw(const Logits& logits, float top, const SampleRow& row,
                           U64 (&scratch)[kRowWarps]) {
  const SampleFilter filter = MakeFilter(logits, top, row, scratch);
  const auto weight = [&](float logit, int id) { return U64{filter.Weight(logit, id)}; };
  const U64 total = Total(logits, weight, scratch);
  const U64 target = UniformBelow(RandomBits(row.seed, row.position, row.choice), total);
  return FindRunningSum(logits, target, weight);
}

// One block per multiprocessor at least: otherwise ptxas aims at three, and spills.
__global__ void __launch_bounds__(kRowThreads, 1) SampleKernel(SampleParams p) {
  GPU_SHARED(scratch, U64[kRowWarps]);
  const SampleRow row = p.rows[blockIdx.x];
  const bool is_adjusted = row.adjusted_row >= 0;
  const size_t source = is_adjusted ? static_cast<size_t>(row.adjusted_row) : blockIdx.x;
  const Logits logits{(is_adjusted ? p.adjusted : p.logits) + source * p.vocabulary, p.vocabulary};
  int token = FindLargest(logits, scratch);
  if (token != kNoToken && row.temperature >= kLeastTemperature) {
    token = Draw(logits, logits.data[token], row, scratch);
  }
  if (threadIdx.x == 0) p.token_ids[blockIdx.x] = token;
}

}  // namespace

void Sample(const SampleParams& params, cudaStream_t stream) {
  VITRINE_CHECK_LE(params.vocabulary, kMaxSampleVocabulary);
  if (params.count == 0) return;
  CheckCuda(gpu::Launch(&SampleKernel,
                        {.grid = dim3(static_cast<unsigned>(params.count)),
                         .block = dim3(kRowThreads),
                         .stream = stream},
                        params));
}

}  // namespace vitrine::cuda
