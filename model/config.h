// The shape of a decoder-only transformer, independent of the file it came from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/activated_mat_mul.h"
#include "kernels/rope_write_kv.h"

namespace vitrine {

// Bounds of what a file may ask for: far above every published model, and low enough that no
// product of two of them overflows.
inline constexpr int kMaxLayers = 1024;
inline constexpr int kMaxWidth = 1 << 20;  // Of the residual stream and the feed-forward block.
inline constexpr int kMaxHeads = 4096;
inline constexpr int kMaxHeadDim = 1024;
inline constexpr int kMaxVocabulary = 1 << 24;

struct ModelConfig {
  std::string architecture;  // Family name as the file gives it: "llama".
  std::string name;          // The model's own name; the file's stem where it has none.
  int num_layers = 0;
  int d_model = 0;         // Width of the residual stream.
  int num_heads = 0;       // Query heads.
  int num_kv_heads = 0;    // Divides num_heads.
  int head_dim = 0;        // Of q and k and v.
  int d_ff = 0;            // Width of the feed-forward block.
  int vocabulary = 0;      // Rows of the embedding.
  int context_length = 0;  // Tokens the model was trained for.
  float norm_epsilon = 0.0f;
  float attention_scale = 0.0f;  // 1 / sqrt(head_dim) unless the file says otherwise.
  Activation activation = Activation::kSilu;

  int rotary_dim = 0;  // Rotated dimensions of a head, even.
  RopePairing rope_pairing = RopePairing::kInterleaved;
  // Angle per position of each pair, [rotary_dim / 2]: base and scaling rules are applied here.
  std::vector<double> rope_frequencies;
  float rope_attention_factor = 1.0f;  // Multiplies cosines and sines (YaRN).
};

}  // namespace vitrine
