// Weights of a synthetic model, made where they are needed: the same bits on the host and on a
// device. A weight is a function of its place in a pool alone.
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vitrine::gpu_check {

// Of weights, for which the generator is asked once. What begins in the pool, or is a row, is a
// multiple of it.
inline constexpr int kWeightsPerDraw = 4;

// The first `count` weights of the pool in bf16: uniform, with this standard deviation.
std::vector<uint16_t> RandomWeights(size_t count, float deviation);

// Rows of a matrix in device memory, to become [rows, columns] of the pool from `first` on.
struct RandomRows {
  __nv_bfloat16* matrix = nullptr;
  int first_row = 0;
  int rows = 0;
  int columns = 0;
  bool is_interleaved = false;  // Eight rows, and eight others between them and the next.
  int64_t first = 0;
  float deviation = 1.0f;
};
// Enqueued to the default stream.
void FillRandomRows(const RandomRows& rows);

}  // namespace vitrine::gpu_check
