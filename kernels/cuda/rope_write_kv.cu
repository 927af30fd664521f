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
  const float* weight;  // Of its norm; null: it has none.
  const float* bias;    // Of its norm, or null.
  float mean;
  float scale;
  float clip;

  __device__ float At(int d) const {
    if (weight == nullptr) return Clipped(values[d], clip);
    const float y = (values[d] - mean) * scale * weight[d];
    return bias == nullptr ? y : y + bias[d];
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

// By what a group of values is shifted and scaled.
struct Moments {
  float mean;
  float scale;
};

// The moments of each group of `span` values, one warp per group.
__device__ inline void FindMoments(const HeadNorm& norm, const float* values, int span,
                                   float epsilon, Moments* moments) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const float count = static_cast<float>(span);
  for (int g = warp; g < norm.groups; g += kThreads / 32) {
    float mean = 0;
    if (norm.is_centred) {
      for (int i = lane; i < span; i += 32) mean += values[g * span + i];
      mean = gpu::WarpSum(mean) / count;
    }
    float squares = 0;
    for (int i = lane; i < span; i += 32) {
      const float x = values[g * span + i] - mean;
      squares = __fmaf_rn(x, x, squares);
    }
    squares = gpu::WarpSum(squares);
    if (lane == 0) moments[g] = {mean, 1.0f / sqrtf(squares / count + epsilon)};
  }
}

// Head `head` of the `heads` heads at `values`.
__device__ inline Head HeadOf(const HeadNorm& norm, const Moments* moments, const float* values,
                              int head, int heads, int dim, float clip) {
  const float* own = values + head * dim;
  if (norm.weight == nullptr) return {own, nullptr, nullptr, 0.0f, 1.0f, clip};
  const int begin = head * dim % norm.size;
  const Moments& group = moments[head / (heads / norm.groups)];
  const float* bias = norm.bias == nullptr ? nullptr : norm.bias + begin;
  return {own, norm.weight + begin, bias, group.mean, group.scale, clip};
}

template <class T>
__global__ void __launch_bounds__(kThreads) RopeWriteKvKernel(RopeWriteKvParams<T> p) {
  GPU_DYNAMIC_SHARED(raw);
  auto* q_moments = reinterpret_cast<Moments*>(raw);
  Moments* k_moments = q_moments + p.q_norm.groups;
  const int row = static_cast<int>(blockIdx.x);
  const RowPlace place = PlaceOf(p.batch, row);
  const int dim = p.kv.head_dim, half = p.rotary_dim / 2, kv_heads = p.kv.kv_heads;
  const int all_heads = p.heads + 2 * kv_heads;
  const float* cosines = p.cosines + static_cast<size_t>(place.position) * half;
  const float* sines = p.sines + static_cast<size_t>(place.position) * half;
  const float* q = p.qkv + static_cast<size_t>(row) * all_heads * dim;
  const float* k = q + p.heads * dim;
  const float* v = k + kv_heads * dim;
  if (p.q_norm.weight != nullptr) {
    FindMoments(p.q_norm, q, p.heads / p.q_norm.groups * dim, p.norm_epsilon, q_moments);
  }
  if (p.k_norm.weight != nullptr) {
    FindMoments(p.k_norm, k, kv_heads / p.k_norm.groups * dim, p.norm_epsilon, k_moments);
  }
  __syncthreads();

  const int block = p.batch.block_table[static_cast<size_t>(place.sequence) * p.batch.max_blocks +
                                        place.position / kKvBlockTokens];
  T* slot = p.kv.data + p.kv.KeyOffset(block, 0) + place.position % kKvBlockTokens * dim;
  float* q_out = p.q + static_cast<size_t>(row) * p.heads * dim;
  for (int i = static_cast<int>(threadIdx.x); i < p.heads * dim; i += kThreads) {
    const Head head = HeadOf(p.q_norm, q_moments, q, i / dim, p.heads, dim, p.clip);
    q_out[i] = Rotated(p, head, i % dim, cosines, sines);
  }
  for (int i = static_cast<int>(threadIdx.x); i < kv_heads * dim; i += kThreads) {
    const Head head = HeadOf(p.k_norm, k_moments, k, i / dim, kv_heads, dim, p.clip);
    T* target = slot + i / dim * kKvBlockTokens * dim + i % dim;
    target[0] = FromFloat<T>(Rotated(p, head, i % dim, cosines, sines));
    target[p.kv.ValueOffset()] = FromFloat<T>(Clipped(v[i], p.clip));
  }
}

}  // namespace

template <class T>
void RopeWriteKv(const RopeWriteKvParams<T>& params, cudaStream_t stream) {
  if (params.batch.rows == 0) return;
  const auto groups = static_cast<size_t>(params.q_norm.groups + params.k_norm.groups);
  CheckCuda(gpu::Launch(&RopeWriteKvKernel<T>,
                        {.grid = dim3(static_cast<unsigned>(params.batch.rows)),
                         .block = dim3(kThreads),
                         .shared_bytes = groups * sizeof(Moments),
                         .stream = stream},
                        params));
}

template void RopeWriteKv(const RopeWriteKvParams<float>& params, cudaStream_t stream);
template void RopeWriteKv(const RopeWriteKvParams<__nv_bfloat16>& params, cudaStream_t stream);

}  // namespace vitrine::cuda
