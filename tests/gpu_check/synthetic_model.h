// A llama of random weights that exists in memory alone: a shape to measure.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "model/transformer_runner.h"

namespace vitrine::gpu_check {

struct ModelShape {
  int layers = 0, d_model = 0, heads = 0, kv_heads = 0, head_dim = 0, d_ff = 0, vocabulary = 0;

  int QueryColumns() const { return heads * head_dim; }
  int KvColumns() const { return kv_heads * head_dim; }
};

// Llama 3 8B.
inline constexpr ModelShape kEightBillion = {.layers = 32,
                                             .d_model = 4096,
                                             .heads = 32,
                                             .kv_heads = 8,
                                             .head_dim = 128,
                                             .d_ff = 14336,
                                             .vocabulary = 128256};
// The same ratios, small enough for the emulator.
inline constexpr ModelShape kTiny = {.layers = 2,
                                     .d_model = 128,
                                     .heads = 4,
                                     .kv_heads = 1,
                                     .head_dim = 32,
                                     .d_ff = 448,
                                     .vocabulary = 512};

// bf16 weights, the same ones on every backend; the cuda backend's are made on the device. Ends the
// process with the reason where the device lacks the memory.
std::unique_ptr<TransformerRunner> CreateSynthetic(Backend& backend, const ModelShape& shape,
                                                   const TransformerLimits& limits);

// Bytes of weights that one decode step reads.
double WeightBytes(const ModelShape& shape);
// Bytes of keys and values per token.
double KvBytesPerToken(const ModelShape& shape);

}  // namespace vitrine::gpu_check
