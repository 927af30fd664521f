// A weight matrix in device memory, in the order in which MatMul streams it.
//
// Columns are padded with zeros to whole blocks of kBlockColumns. A warp takes a row in chunks;
// lane q of four owns columns 8q .. 8q + 7 of every block and finds them in 16-byte words, in an
// order that feeds two steps of a matrix instruction without a shuffle. Per format:
//   kBF16, kF16  [rows][columns] as they are
//   kF32Columns  [columns][rows], f32, neither padded nor cut into blocks
//   kQ8_0        [rows][chunks][2 pairs of blocks][4 lanes][2 blocks][8 quants]
//   kQ4_0, kQ4_1 [rows][chunks][4 lanes][4 blocks][8 quants, Q4Position()], 16 bytes per lane
// Scales and minima of quantised formats: [rows][chunks][4 blocks], f16. A chunk has four blocks.
#pragma once

#include <cuda_fp16.h>

namespace vitrine::cuda {

inline constexpr int kBlockColumns = 32;
// Of gate and up, so many rows alternate.
inline constexpr int kGatedGroup = 8;
inline constexpr int kQuantChunkBlocks = 4;
inline constexpr int kQuantChunkColumns = kQuantChunkBlocks * kBlockColumns;

enum class WeightFormat {
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kF32Columns,
};

struct DeviceWeights {
  WeightFormat format = WeightFormat::kBF16;
  const void* values = nullptr;
  const __half* scales = nullptr;  // quantised formats
  const __half* minima = nullptr;  // kQ4_1
  int rows = 0;
  int columns = 0;  // With padding.

  __host__ __device__ int QuantChunks() const {
    return (columns + kQuantChunkColumns - 1) / kQuantChunkColumns;
  }
};

// Byte of quant `i` (0 .. 31) of block `block` within a Q8_0 chunk.
__host__ __device__ constexpr int Q8Position(int block, int i) {
  return block / 2 * 64 + i / 8 * 16 + block % 2 * 8 + i % 8;
}

// The same for 4-bit quants, in nibbles: low halves of bytes are even.
__host__ __device__ constexpr int Q4Position(int block, int i) {
  return i / 8 * 32 + block * 8 + i % 4 * 2 + i % 8 / 4;
}

}  // namespace vitrine::cuda
