// RoPE and paged KV write, one block per row. Bound: (heads + 2 kv_heads) * head_dim * about 8
// bytes per row plus the cosines; launch-bound at decode sizes.
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/number.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/rope_write_kv.h"

namespace vitrine::cuda {
namespace {

constexpr int kThreads = 256;

// NaN stays NaN, which fminf and fmaxf would turn into a number.
__device__ inline float Clipped(float x, float clip) {
  if (clip > 0.0f && x < -clip) return -clip;
  return clip > 0.0f && x > clip ? clip : x;
}

// One head of a row before the rotation.
struct Head {
  const float* values;
  const float* norm;  // Null: as it is.
  float scale;
  float clip;

  __device__ float At(int d) const {
    return norm == nullptr ? Clipped(values[d], clip) : values[d] * scale * norm[d];
  }
};

// Dimension `d` of a head after the rotation by the row's angles.
template <class T>
__device__ float Rotated(const RopeWriteKvParams<T>& p, const Head& head, int d,
                         const float* cosines, const float* sines) {
  if (d >= p.rotary_dim) return head.At(d);
  const int half = p.rotary_dim / 2;
  const int pair = p.interleaved ? d / 2 : d % half;
  const bool is_first = p.interleaved ? d % 2 == 0 : d < half;
  const int partner = p.interleaved ? d ^ 1 : (is_first ? d + half : d - half);
  const float turned = head.At(partner) * sines[pair];
  const float kept = head.At(d) * cosines[pair];
  return is_first ? kept - turned : kept + turned;
}

// 1 / rms of each group of `span` values, one warp per group.
__device__ inline void NormScales(const float* values, int groups, int span, float epsilon,
                                  float* scales) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int g = warp; g < groups; g += kThreads / 32) {
    float squares = 0;
    for (int i = lane; i < span; i += 32) {
      const float x = values[g * span + i];
      squares = __fmaf_rn(x, x, squares);
    }
    squares = gpu::WarpSum(squares);
    if (lane == 0) scales[g] = 1.0f / sqrtf(squares / static_cast<float>(span) + epsilon);
  }
}

// Head `head` of the `heads` heads at `values`, normalised in `groups` groups.
__device__ inline Head HeadOf(const float* values, int head, int heads, int dim, const float* norm,
                              int groups, const float* scales, float clip) {
  if (norm == nullptr) return {values + head * dim, nullptr, 1.0f, clip};
  const int together = heads / groups;
  return {values + head * dim, norm + head % together * dim, scales[head / together], clip};
}

template <class T>
__global__ void __launch_bounds__(kThreads) RopeWriteKvKernel(RopeWriteKvParams<T> p) {
  GPU_DYNAMIC_SHARED(raw);
  auto* q_scales = reinterpret_cast<float*>(raw);
  float* k_scales = q_scales + p.q_norm_groups;
  const int row = static_cast<int>(blockIdx.x);
  const RowPlace place = PlaceOf(p.batch, row);
  const int dim = p.kv.head_dim, half = p.rotary_dim / 2, kv_heads = p.kv.kv_heads;
  const int all_heads = p.heads + 2 * kv_heads;
  const float* cosines = p.cosines + static_cast<size_t>(place.position) * half;
  const float* sines = p.sines + static_cast<size_t>(place.position) * half;
  const float* q = p.qkv + static_cast<size_t>(row) * all_heads * dim;
  const float* k = q + p.heads * dim;
  const float* v = k + kv_heads * dim;
  if (p.q_norm != nullptr) {
    NormScales(q, p.q_norm_groups, p.heads / p.q_norm_groups * dim, p.norm_epsilon, q_scales);
  }
  if (p.k_norm != nullptr) {
    NormScales(k, p.k_norm_groups, kv_heads / p.k_norm_groups * dim, p.norm_epsilon, k_scales);
  }
  __syncthreads();

  const int block = p.batch.block_table[static_cast<size_t>(place.sequence) * p.batch.max_blocks +
                                        place.position / kKvBlockTokens];
  T* slot = p.kv.data + p.kv.KeyOffset(block, 0) + place.position % kKvBlockTokens * dim;
  float* q_out = p.q + static_cast<size_t>(row) * p.heads * dim;
  for (int i = static_cast<int>(threadIdx.x); i < p.heads * dim; i += kThreads) {
    const Head head = HeadOf(q, i / dim, p.heads, dim, p.q_norm, p.q_norm_groups, q_scales, p.clip);
    q_out[i] = Rotated(p, head, i % dim, cosines, sines);
  }
  for (int i = static_cast<int>(threadIdx.x); i < kv_heads * dim; i += kThreads) {
    const Head head =
        HeadOf(k, i / dim, kv_heads, dim, p.k_norm, p.k_norm_groups, k_scales, p.clip);
    T* target = slot + i / dim * kKvBlockTokens * dim + i % dim;
    target[0] = FromFloat<T>(Rotated(p, head, i % dim, cosines, sines));
    target[p.kv.ValueOffset()] = FromFloat<T>(Clipped(v[i], p.clip));
  }
}

}  // namespace

template <class T>
void RopeWriteKv(const RopeWriteKvParams<T>& params, cudaStream_t stream) {
  if (params.batch.rows == 0) return;
  const auto scales = static_cast<size_t>(params.q_norm_groups + params.k_norm_groups);
  CheckCuda(gpu::Launch(&RopeWriteKvKernel<T>,
                        {.grid = dim3(static_cast<unsigned>(params.batch.rows)),
                         .block = dim3(kThreads),
                         .shared_bytes = scales * sizeof(float),
                         .stream = stream},
                        params));
}

template void RopeWriteKv(const RopeWriteKvParams<float>& params, cudaStream_t stream);
template void RopeWriteKv(const RopeWriteKvParams<__nv_bfloat16>& params, cudaStream_t stream);

}  // namespace vitrine::cuda
