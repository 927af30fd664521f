#pragma once

#include "kernels/buffer.h"
#include "kernels/paged_batch.h"

namespace vitrine {

// Which dimensions of a head form a pair that is rotated together (Su et al., 2021).
enum class RopePairing {
  kInterleaved,  // (2i, 2i + 1): llama GGUF files, GPT-J
  kHalfSplit,    // (i, i + rotary_dim / 2): Hugging Face llama, NeoX
};

// What a norm of q or k computes.
enum class HeadNormKind {
  kRms,    // As RmsNorm.
  kLayer,  // As LayerNorm.
};

// Where rotated queries, rotated keys and values of a step go.
struct RopeKvTarget {
  DeviceSpan<const float> cosines;  // [positions, rotary_dim / 2], attention factors included
  DeviceSpan<const float> sines;    // [positions, rotary_dim / 2]
  int rotary_dim = 0;               // Even, at most head_dim; the rest of a head passes through.
  RopePairing pairing = RopePairing::kInterleaved;
  const PagedBatch* batch = nullptr;
  int num_heads = 0;  // Query heads; key/value heads and head_dim are those of `kv`.
  KvStorage* kv = nullptr;
  int layer = 0;
  DeviceSpan<float> q;  // [rows, num_heads, head_dim]

  // Where above 0, no element of q, k and v leaves [-clip, clip] (OLMo, MPT), but NaN stays NaN.
  // Not with a norm.
  float clip = 0.0f;

  // Weights of a norm of q and k before the rotation, or empty. kRms: [head_dim] normalises every
  // head by itself (Qwen 3), [heads * head_dim] all heads of a row together (OLMo 2; RopeWriteKv
  // only). kLayer: every head by itself, with one weight for all, [head_dim] (Phi), or with its
  // own, [heads * head_dim] (StableLM).
  HeadNormKind norm_kind = HeadNormKind::kRms;
  DeviceSpan<const float> q_norm = {};
  DeviceSpan<const float> k_norm = {};
  DeviceSpan<const float> q_norm_bias = {};  // As long as the weight; kLayer only. Or empty.
  DeviceSpan<const float> k_norm_bias = {};
  float norm_epsilon = 0.0f;
};

// Clips q, k and v and normalises q and k where asked, rotates them by their position (pair (a, b)
// -> (a cos - b sin, b cos + a sin)), writes k and v to the row's cache slot and q to target.q. All
// products and sums in f32. A cache of kQ8_0 holds keys as int8 with a scale (largest / 127) per 16
// dimensions, and values in bf16.
struct RopeWriteKvArgs {
  DeviceSpan<const float> qkv;  // [rows, num_heads + 2 num_kv_heads, head_dim]
  RopeKvTarget target;
};

// qkv = weight * input + bias, then RopeWriteKv, bit for bit, without the round trip to memory.
struct MatMulRopeWriteKvArgs {
  const RowBuffer* input = nullptr;      // [rows, columns]
  const PackedMatrix* weight = nullptr;  // RowLayout::kHeads, parts q, k, v
  DeviceSpan<const float> bias = {};     // [weight rows], or empty
  RopeKvTarget target;
};

}  // namespace vitrine
