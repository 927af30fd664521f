// Biases, bans and penalties, one block per row. Bound: vocabulary * 8 bytes per row from L2.
#include "kernels/cuda/adjust_logits.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/launch.h"
#include "kernels/sampling_math.h"

namespace vitrine::cuda {
namespace {

constexpr int kThreads = 512;

// No list holds an id twice, so its items have different targets; between lists is a barrier.
template <class T, class Body>
__device__ void ForEachItem(const DeviceList<T>& list, Body body) {
  for (int i = static_cast<int>(threadIdx.x); i < list.size; i += kThreads) body(list.data[i]);
  if (list.size > 0) __syncthreads();
}

__global__ void __launch_bounds__(kThreads) AdjustLogitsKernel(AdjustLogitsParams p) {
  const DeviceAdjustment adjustment = p.adjustments[blockIdx.x];
  const float* logits = p.logits + static_cast<size_t>(adjustment.row) * p.vocabulary;
  float* output = p.output + static_cast<size_t>(blockIdx.x) * p.vocabulary;
  const bool bans_others = adjustment.allowed.size > 0;
  for (int i = static_cast<int>(threadIdx.x); i < p.vocabulary; i += kThreads) {
    output[i] = bans_others ? BannedLogit(logits[i]) : logits[i];
  }
  __syncthreads();
  const auto ban = [&](int32_t id) { output[id] = BannedLogit(output[id]); };
  ForEachItem(adjustment.allowed, [&](int32_t id) { output[id] = logits[id]; });
  ForEachItem(adjustment.biases, [&](const TokenBias& entry) {
    output[entry.token_id] = BiasedLogit(output[entry.token_id], entry.bias);
  });
  ForEachItem(adjustment.banned, ban);
  ForEachItem(adjustment.withheld, ban);
  ForEachItem(adjustment.seen, [&](const SeenToken& token) {
    output[token.token_id] =
        PenalizedLogit(output[token.token_id], token.generated, adjustment.repetition_penalty,
                       adjustment.presence_penalty, adjustment.frequency_penalty);
  });
}

}  // namespace

void AdjustLogits(const AdjustLogitsParams& params, cudaStream_t stream) {
  if (params.count == 0) return;
  CheckCuda(gpu::Launch(&AdjustLogitsKernel,
                        {.grid = dim3(static_cast<unsigned>(params.count)),
                         .block = dim3(kThreads),
                         .stream = stream},
                        params));
}

}  // namespace vitrine::cuda
