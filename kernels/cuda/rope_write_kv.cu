// RoPE and paged KV write, one block per row. Bound: (heads + 2 kv_heads) * head_dim * about 8
// bytes per row plus the cosines; launch-bound at decode sizes.
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/number.h"
#include "kernels/cuda/rope_write_kv.h"

namespace vitrine::cuda {
namespace {

constexpr int kThreads = 256;

// Dimension `d` of a head after the rotation by the row's angles.
template <class T>
__device__ float Rotated(const RopeWriteKvParams<T>& p, const float* head, int d,
                         const float* cosines, const float* sines) {
  if (d >= p.rotary_dim) return head[d];
  const int half = p.rotary_dim / 2;
  const int pair = p.interleaved ? d / 2 : d % half;
  const bool is_first = p.interleaved ? d % 2 == 0 : d < half;
  const int partner = p.interleaved ? d ^ 1 : (is_first ? d + half : d - half);
  const float turned = head[partner] * sines[pair];
  const float kept = head[d] * cosines[pair];
  return is_first ? kept - turned : kept + turned;
}

template <class T>
__global__ void __launch_bounds__(kThreads) RopeWriteKvKernel(RopeWriteKvParams<T> p) {
  const int row = static_cast<int>(blockIdx.x);
  const RowPlace place = PlaceOf(p.batch, row);
  const int dim = p.kv.head_dim, half = p.rotary_dim / 2;
  const int all_heads = p.heads + 2 * p.kv.kv_heads;
  const float* cosines = p.cosines + static_cast<size_t>(place.position) * half;
  const float* sines = p.sines + static_cast<size_t>(place.position) * half;
  const float* qkv = p.qkv + static_cast<size_t>(row) * all_heads * dim;
  float* q = p.q + static_cast<size_t>(row) * p.heads * dim;
  const int block = p.batch.block_table[static_cast<size_t>(place.sequence) * p.batch.max_blocks +
                                        place.position / kKvBlockTokens];
  T* slot = p.kv.data + p.kv.KeyOffset(block, 0) + place.position % kKvBlockTokens * dim;
  for (int i = static_cast<int>(threadIdx.x); i < all_heads * dim; i += kThreads) {
    const int head = i / dim, d = i % dim;
    const int kv_head = (head - p.heads) % p.kv.kv_heads;
    const float* source = qkv + head * dim;
    if (head < p.heads) {
      q[i] = Rotated(p, source, d, cosines, sines);
    } else if (head < p.heads + p.kv.kv_heads) {
      slot[kv_head * kKvBlockTokens * dim + d] =
          FromFloat<T>(Rotated(p, source, d, cosines, sines));
    } else {
      slot[p.kv.ValueOffset() + kv_head * kKvBlockTokens * dim + d] = FromFloat<T>(source[d]);
    }
  }
}

}  // namespace

template <class T>
void RopeWriteKv(const RopeWriteKvParams<T>& params, cudaStream_t stream) {
  if (params.batch.rows == 0) return;
  CheckCuda(gpu::Launch(&RopeWriteKvKernel<T>,
                        {.grid = dim3(static_cast<unsigned>(params.batch.rows)),
                         .block = dim3(kThreads),
                         .stream = stream},
                        params));
}

template void RopeWriteKv(const RopeWriteKvParams<float>& params, cudaStream_t stream);
template void RopeWriteKv(const RopeWriteKvParams<__nv_bfloat16>& params, cudaStream_t stream);

}  // namespace vitrine::cuda
