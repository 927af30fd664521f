// One warp's attention of 16 query rows over a tile of kTileKeys keys on matrix instructions: the
// unit from which decode and prefill are both built, so that a row has the same bits in either.
#pragma once

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_math.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/reduce.h"

namespace vitrine::cuda {

inline constexpr int kTileRows = 16;
inline constexpr int kTileBlocks = kTileKeys / kKvBlockTokens;

template <int kDim>
struct KeyTile {
  static constexpr int kStride = kDim + 8;  // 16 bytes of padding against bank conflicts.
  __nv_bfloat16 k[kTileKeys][kStride];
  __nv_bfloat16 v[kTileKeys][kStride];
};

// Starts the copy of a tile of one sequence; keys at or past `context` become zeros. The calling
// threads are `thread` of `threads`.
template <int kDim>
__device__ void LoadTile(KeyTile<kDim>& target, const MatrixAttentionParams& p, int sequence,
                         int kv_head, int tile, int context, int thread, int threads) {
  constexpr int kVectors = kDim / 8;
  const int32_t* blocks = p.batch.block_table + static_cast<size_t>(sequence) * p.batch.max_blocks;
  for (int i = thread; i < kTileKeys * kVectors; i += threads) {
    const int token = i / kVectors, column = i % kVectors * 8;
    const int key = tile * kTileKeys + token;
    const bool valid = key < context;
    const int block = valid ? blocks[key / kKvBlockTokens] : 0;
    const __nv_bfloat16* k =
        p.kv.data + p.kv.KeyOffset(block, kv_head) + key % kKvBlockTokens * kDim + column;
    gpu::CpAsync16(&target.k[token][column], k, valid);
    gpu::CpAsync16(&target.v[token][column], k + p.kv.ValueOffset(), valid);
  }
}

// Where the query row lane / 4 + 8 h of a warp comes from; null: no such row.
struct QueryRows {
  const float* q[2];
  int position[2];
  float slope[2];
};

// The queries as operand A, rounded to bf16. Missing rows are zero.
template <int kDim>
__device__ void LoadQueries(uint32_t (&a)[kDim / 16][4], const QueryRows& rows) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  GPU_UNROLL
  for (int step = 0; step < kDim / 16; ++step) {
    GPU_UNROLL
    for (int r = 0; r < 4; ++r) {
      const float* q = rows.q[r % 2];
      const int column = step * 16 + lane % 4 * 2 + r / 2 * 8;
      a[step][r] = q != nullptr ? gpu::PackBf16(q[column], q[column + 1]) : 0u;
    }
  }
}

// What a lane holds of a tile's result: rows lane / 4 and lane / 4 + 8, and of every eight
// dimensions two.
template <int kDim>
struct TileResult {
  PartialSoftmax softmax[2];
  float values[kDim / 8][4] = {};
};

template <int kDim>
__device__ void TileScores(float (&p)[8][4], const KeyTile<kDim>& tile,
                           const uint32_t (&a)[kDim / 16][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  GPU_UNROLL
  for (int step = 0; step < kDim / 16; ++step) {
    GPU_UNROLL
    for (int n = 0; n < 4; ++n) {  // 16 keys per load: (keys 0-7, 8-15) x (depth low, high)
      uint32_t b[4];
      gpu::LdMatrixX4(b, &tile.k[n * 16 + lane / 16 * 8 + lane % 8][step * 16 + lane / 8 % 2 * 8]);
      gpu::MmaBf16(p[2 * n], a[step], b[0], b[1]);
      gpu::MmaBf16(p[2 * n + 1], a[step], b[2], b[3]);
    }
  }
}

// Scores become weights relative to the row's largest in this tile.
__device__ inline PartialSoftmax TileWeights(float (&p)[8][4], int h, const ScoreRule& rule,
                                             const QueryRows& rows, int first_key) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  PartialSoftmax part;
  GPU_UNROLL
  for (int n = 0; n < 8; ++n) {
    GPU_UNROLL
    for (int e = 2 * h; e < 2 * h + 2; ++e) {
      const int key = first_key + n * 8 + lane % 4 * 2 + e % 2;
      const bool visible = rows.q[h] != nullptr && Sees(rule, rows.position[h], key);
      p[n][e] = visible ? Score(rule, p[n][e], rows.slope[h], rows.position[h], key) : -INFINITY;
      part.top = fmaxf(part.top, p[n][e]);
    }
  }
  part.top = gpu::QuadMax(part.top);
  GPU_UNROLL
  for (int n = 0; n < 8; ++n) {
    GPU_UNROLL
    for (int e = 2 * h; e < 2 * h + 2; ++e) {
      p[n][e] = p[n][e] == -INFINITY ? 0.0f : expf(p[n][e] - part.top);
      part.sum += p[n][e];
    }
  }
  part.sum = gpu::QuadSum(part.sum);
  return part;
}

template <int kDim>
__device__ TileResult<kDim> AttendTile(const KeyTile<kDim>& tile, const uint32_t (&a)[kDim / 16][4],
                                       const ScoreRule& rule, const QueryRows& rows,
                                       int first_key) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float p[8][4] = {};
  TileScores<kDim>(p, tile, a);
  TileResult<kDim> result;
  GPU_UNROLL
  for (int h = 0; h < 2; ++h) result.softmax[h] = TileWeights(p, h, rule, rows, first_key);
  GPU_UNROLL
  for (int i = 0; i < 4; ++i) {  // The accumulators of two score tiles are one operand A.
    const uint32_t weights[4] = {gpu::PackBf16(p[2 * i][0], p[2 * i][1]),
                                 gpu::PackBf16(p[2 * i][2], p[2 * i][3]),
                                 gpu::PackBf16(p[2 * i + 1][0], p[2 * i + 1][1]),
                                 gpu::PackBf16(p[2 * i + 1][2], p[2 * i + 1][3])};
    GPU_UNROLL
    for (int n = 0; n < kDim / 16; ++n) {
      uint32_t b[4];
      gpu::LdMatrixX4Trans(b, &tile.v[i * 16 + lane % 16][n * 16 + lane / 16 * 8]);
      gpu::MmaBf16(result.values[2 * n], weights, b[0], b[1]);
      gpu::MmaBf16(result.values[2 * n + 1], weights, b[2], b[3]);
    }
  }
  return result;
}

// Calls launch.template operator()<kDim>() for the head sizes that have matrix kernels.
template <class Launch>
bool DispatchHeadDim(int head_dim, Launch launch) {
  switch (head_dim) {
    case 32:
      launch.template operator()<32>();
      return true;
    case 64:
      launch.template operator()<64>();
      return true;
    case 96:
      launch.template operator()<96>();
      return true;
    case 128:
      launch.template operator()<128>();
      return true;
    default:
      return false;
  }
}

}  // namespace vitrine::cuda
