#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/paged_layout.h"

namespace vitrine::cuda {

// A norm of the heads of q or of k before the rotation; none where `weight` is null.
struct HeadNorm {
  const float* weight = nullptr;  // [size], again and again over the heads
  const float* bias = nullptr;    // [size], or null
  int size = 0;                   // head_dim, or heads * head_dim
  int groups = 0;                 // 1 or heads: what is normalised together
  bool is_centred = false;        // A layer norm, else an RMS norm.
};

// RopeWriteKv of kernels/rope_write_kv.h. T, the type of the cache: float or __nv_bfloat16.
template <class T>
struct RopeWriteKvParams {
  const float* qkv = nullptr;      // [rows, heads + 2 kv_heads, head_dim]
  const float* cosines = nullptr;  // [positions, rotary_dim / 2]
  const float* sines = nullptr;    // [positions, rotary_dim / 2]
  DeviceBatch batch;
  PagedKv<T> kv;
  float* q = nullptr;  // [rows, heads, head_dim]
  int heads = 0;
  int rotary_dim = 0;
  HeadNorm q_norm;
  HeadNorm k_norm;
  float norm_epsilon = 0.0f;
  float clip = 0.0f;         // Of q, k and v; 0: none.
  bool interleaved = false;  // Pairs (2i, 2i + 1) instead of (i, i + rotary_dim / 2).
};
template <class T>
void RopeWriteKv(const RopeWriteKvParams<T>& params, cudaStream_t stream);

}  // namespace vitrine::cuda
