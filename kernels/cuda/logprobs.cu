// Log-probabilities of one token and the most probable ones, one block per row, after the passes
// that find the row's distribution. The largest are found one after the other. Bound: at most 22
// passes over vocabulary * 4 bytes from L2 by one SM.
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/logprobs.h"
#include "kernels/cuda/sample_filter.h"

namespace vitrine::cuda {
namespace {

// What `search` has found: for a raw row the logits as they are, at temperature 0 one token.
__device__ SampleFilter FilterOf(const RowSearch& search, const LogprobsRow& row,
                                 const SampleRow& sampling) {
  SampleFilter filter = search.filter;
  if (row.is_processed && sampling.temperature < kLeastTemperature) {
    filter.least_key = LogitKey(filter.top);
    filter.last_tied_id = search.token;
  }
  return filter;
}

__global__ void __launch_bounds__(kRowThreads) LogprobsKernel(LogprobsParams p) {
  GPU_SHARED(scratch, Scratch);
  const RowSearch& search = p.searches[blockIdx.x];
  const LogprobsRow row = p.rows[blockIdx.x];
  const SampleRow sampling = row.is_processed ? p.sampling[row.row] : SampleRow();
  const float* logits = SourceOf(p.logits, p.adjusted, row.row, sampling, p.vocabulary);
  const RowPart all{logits, 0, p.vocabulary};
  LogprobsResult& result = p.output[blockIdx.x];
  const bool is_first = threadIdx.x == 0;
  const int token = row.token_id >= 0 ? row.token_id : p.token_ids[row.row];
  if (search.token == kNoToken || token < 0) {
    if (is_first) result.top_count = 0;
    return;
  }
  const SampleFilter filter = FilterOf(search, row, sampling);
  const auto weight = [&](float logit, int id) { return U64{filter.Weight(logit, id)}; };
  // 0 for what is not in the distribution.
  const auto order = [&](float logit, int id) {
    const bool exists =
        row.is_processed ? weight(logit, id) > 0 : LogitKey(logit) > kNegativeInfinityKey;
    return exists ? OrderOf(logit, id) : U64{0};
  };
  const U64 total = all.Sum(weight, scratch);
  const U64 order_of_token = OrderOf(logits[token], token);
  const U64 larger =
      all.Sum([&](float logit, int id) { return U64{order(logit, id) > order_of_token}; }, scratch);
  int count = 0;
  U64 previous = ~U64{0};
  for (; count < row.top_count; ++count) {
    const U64 next = all.Max(
        [&](float logit, int id) {
          const U64 one = order(logit, id);
          return one < previous ? one : U64{0};
        },
        scratch);
    if (next == 0) break;
    previous = next;
    if (!is_first) continue;
    result.top_ids[count] = static_cast<int32_t>(~static_cast<uint32_t>(next));
    result.top_logits[count] = logits[result.top_ids[count]];
  }
  if (!is_first) return;
  result.top_logit = filter.top;
  result.temperature = filter.temperature;
  result.total_weight = total;
  result.logit = logits[token];
  result.rank = static_cast<int32_t>(larger) + 1;
  result.top_count = count;
}

}  // namespace

void Logprobs(const LogprobsParams& params, cudaStream_t stream) {
  if (params.count == 0) return;
  SearchRows({.logits = params.logits,
              .adjusted = params.adjusted,
              .rows = params.sampling,
              .scored = params.rows,
              .searches = params.searches,
              .count = params.count,
              .vocabulary = params.vocabulary,
              .passes = params.passes},
             stream);
  CheckCuda(gpu::Launch(&LogprobsKernel,
                        {.grid = dim3(static_cast<unsigned>(params.count)),
                         .block = dim3(kRowThreads),
                         .stream = stream},
                        params));
}

}  // namespace vitrine::cuda
