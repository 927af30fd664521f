#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/paged_layout.h"

namespace vitrine::cuda {

// How a raw dot product becomes a score, and which keys a query sees.
struct ScoreRule {
  float scale = 1.0f;
  float softcap = 0.0f;  // 0: none; else cap * tanh(score / cap)
  int window = 0;        // 0: none; else the query's own and the window - 1 keys before it
};

// PagedAttention of kernels/paged_attention.h. Kv: type of the cache, float or __nv_bfloat16.
template <class Kv>
struct AttentionParams {
  const float* q = nullptr;  // [rows, heads, head_dim]
  DeviceBatch batch;
  PagedKv<const Kv> kv;
  int heads = 0;
  ScoreRule rule;
  const float* sinks = nullptr;         // [heads], or null
  const float* alibi_slopes = nullptr;  // [heads], or null
  DeviceRows output;                    // [rows, heads * head_dim]
  float* log_sum_exp = nullptr;         // [rows, heads], or null

  // Decode and prefill kernels only: the sequences that they compute.
  const int32_t* sequences = nullptr;  // [sequence_count]
  int sequence_count = 0;
  int max_context = 0;  // Decode: most keys of one of the sequences.
  int max_rows = 0;     // Prefill: most rows of one of the sequences.
  // Decode: tiles of one sequence after the other, [tiles, heads, head_dim + 2] floats.
  float* workspace = nullptr;
  const int32_t* tile_begin = nullptr;  // [sequence_count], each sequence's first tile
};
using MatrixAttentionParams = AttentionParams<__nv_bfloat16>;

// Any head size up to kMaxScalarHeadDim, f32 products, one warp per (head, row): for exact
// numerics, f32 caches and the head sizes that the matrix kernels lack.
inline constexpr int kMaxScalarHeadDim = 256;
template <class Kv>
void ScalarAttention(const AttentionParams<Kv>& params, cudaStream_t stream);

// On bf16 matrix instructions. Both kernels compute the keys of a row in tiles of kTileKeys at
// absolute positions and merge the tiles in ascending order, so a row has the same bits in either.
bool HasMatrixAttention(int head_dim);

// For sequences with one row. A KV group's query heads share the reads of its keys.
void DecodeAttention(const MatrixAttentionParams& params, cudaStream_t stream);
// For sequences with any number of rows.
void PrefillAttention(const MatrixAttentionParams& params, cudaStream_t stream);

// Tiles of a sequence with `context` keys.
inline constexpr int kTileKeys = 64;
constexpr int TilesFor(int context) { return (context + kTileKeys - 1) / kTileKeys; }
// Of decode attention's workspace per tile.
constexpr size_t TileBytes(int heads, int head_dim) {
  return static_cast<size_t>(heads) * static_cast<size_t>(head_dim + 2) * sizeof(float);
}

}  // namespace vitrine::cuda
