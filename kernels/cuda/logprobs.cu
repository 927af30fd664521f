// Log-probabilities of one token and the most probable ones, one block per row. The largest are
// found one after the other. Bound: at most 23 passes over vocabulary * 4 bytes from L2 by one SM,
// and for processed rows those of the filter.
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/logprobs.h"
#include "kernels/cuda/sample_filter.h"

namespace vitrine::cuda {
namespace {

// Larger for the more probable token; of equal ones, for the lower id.
__device__ inline U64 OrderOf(float logit, int id) {
  return static_cast<U64>(LogitKey(logit)) << 32 | ~static_cast<uint32_t>(id);
}

__device__ inline SampleFilter FilterOf(const Logits& logits, int best, const LogprobsRow& row,
                                        const SampleRow& sampling, U64 (&scratch)[kRowWarps]) {
  const float top = logits.data[best];
  if (row.is_processed && sampling.temperature >= kLeastTemperature) {
    return MakeFilter(logits, top, sampling, scratch);
  }
  SampleFilter filter;
  filter.top = top;
  if (row.is_processed) {
    filter.least_key = LogitKey(top);
    filter.last_tied_id = best;
  }
  return filter;
}

__global__ void __launch_bounds__(kRowThreads) LogprobsKernel(LogprobsParams p) {
  GPU_SHARED(scratch, U64[kRowWarps]);
  const LogprobsRow row = p.rows[blockIdx.x];
  const SampleRow sampling = row.is_processed ? p.sampling[row.row] : SampleRow();
  const bool is_adjusted = sampling.adjusted_row >= 0;
  const auto source = static_cast<size_t>(is_adjusted ? sampling.adjusted_row : row.row);
  const Logits logits{(is_adjusted ? p.adjusted : p.logits) + source * p.vocabulary, p.vocabulary};
  LogprobsResult& result = p.output[blockIdx.x];
  const bool is_first = threadIdx.x == 0;
  const int best = FindLargest(logits, scratch);
  const int token = row.token_id >= 0 ? row.token_id : p.token_ids[row.row];
  if (best == kNoToken || token < 0) {
    if (is_first) result.top_count = 0;
    return;
  }
  const SampleFilter filter = FilterOf(logits, best, row, sampling, scratch);
  const auto weight = [&](float logit, int id) { return U64{filter.Weight(logit, id)}; };
  // 0 for what is not in the distribution.
  const auto order = [&](int id) {
    const float logit = logits.data[id];
    const bool exists =
        row.is_processed ? weight(logit, id) > 0 : LogitKey(logit) > kNegativeInfinityKey;
    return exists ? OrderOf(logit, id) : U64{0};
  };
  const U64 total = Total(logits, weight, scratch);
  const U64 order_of_token = OrderOf(logits.data[token], token);
  U64 larger = 0;
  for (int i = static_cast<int>(threadIdx.x); i < logits.size; i += kRowThreads) {
    larger += order(i) > order_of_token ? 1 : 0;
  }
  larger = gpu::BlockSum<kRowThreads>(larger, scratch);
  int count = 0;
  U64 previous = ~U64{0};
  for (; count < row.top_count; ++count) {
    U64 next = 0;
    for (int i = static_cast<int>(threadIdx.x); i < logits.size; i += kRowThreads) {
      const U64 one = order(i);
      if (one < previous && one > next) next = one;
    }
    next = gpu::BlockMax<kRowThreads>(next, scratch);
    if (next == 0) break;
    previous = next;
    if (!is_first) continue;
    result.top_ids[count] = static_cast<int32_t>(~static_cast<uint32_t>(next));
    result.top_logits[count] = logits.data[result.top_ids[count]];
  }
  if (!is_first) return;
  result.top_logit = filter.top;
  result.temperature = filter.temperature;
  result.total_weight = total;
  result.logit = logits.data[token];
  result.rank = static_cast<int32_t>(larger) + 1;
  result.top_count = count;
}

}  // namespace

void Logprobs(const LogprobsParams& params, cudaStream_t stream) {
  VITRINE_CHECK_LE(params.vocabulary, kMaxSampleVocabulary);
  if (params.count == 0) return;
  CheckCuda(gpu::Launch(&LogprobsKernel,
                        {.grid = dim3(static_cast<unsigned>(params.count)),
                         .block = dim3(kRowThreads),
                         .stream = stream},
                        params));
}

}  // namespace vitrine::cuda
