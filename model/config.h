// The shape of a decoder-only transformer, independent of the file it came from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/activated_mat_mul.h"
#include "kernels/rope_write_kv.h"
#include "kernels/sample.h"

namespace vitrine {

// Bounds of what a file may ask for: far above every published model, and low enough that no
// product of two of them overflows.
inline constexpr int kMaxLayers = 1024;
inline constexpr int kMaxWidth = 1 << 20;  // Of the residual stream and the feed-forward block.
inline constexpr int kMaxHeads = 4096;
inline constexpr int kMaxHeadDim = 1024;
inline constexpr int kMaxVocabulary = kMaxSampleVocabulary;
inline constexpr int kMaxExperts = 1024;

enum class NormKind { kRms, kLayer };

// Where a block (attention, feed-forward) is normalised.
enum class NormPlacement {
  kInput,           // x + block(norm(x)): llama, GPT-2
  kOutput,          // x + norm(block(x)): OLMo 2
  kInputAndOutput,  // x + norm(block(norm(x))): Gemma 2
  kStream,          // y + block(y) where y = norm(x), a layer norm: OPT 350M
};

enum class QkNorm {
  kNone,
  kPerHead,   // RMS norm of every head by itself: Qwen 3, Gemma 3
  kAllHeads,  // RMS norm of all heads of a row together: OLMo 2
  kLayer,     // Layer norm of every head by itself: Phi
  kOwnLayer,  // Layer norm of every head by itself, with weights of its own: StableLM
};

// Where the order of tokens comes from. Rotation is on where rotary_dim > 0.
enum class PositionBias {
  kNone,
  kLearned,  // A table that is added to the embeddings: GPT-2
  kAlibi,    // Slopes on the scores (Press et al., 2021)
};

// A mixture of experts: feed-forward blocks of which each row passes a few.
struct ExpertConfig {
  int count = 0;                    // 0: one block for all rows.
  int per_token = 0;                // Blocks that a row passes.
  int d_ff = 0;                     // Width of each.
  bool normalizes_weights = false;  // Those of the chosen ones sum to 1: Mixtral
  int d_shared = 0;                 // Of one that all rows pass, too; 0: none (Qwen 2 MoE).
};

// What differs between the layers of one model.
struct LayerConfig {
  bool is_dense = false;     // One feed-forward block for all rows, in a mixture of experts.
  int window = 0;            // Keys a row sees, its own included; 0: all before it.
  bool rotates = true;       // False: no rotation in this layer (SmolLM3).
  bool local_rope = false;   // Rotates by local_rope_frequencies (Gemma 3's windowed layers).
  float query_scale = 1.0f;  // Of queries, applied to their weights when they are loaded.
};

struct ModelConfig {
  std::string architecture;  // Family name as the file gives it: "llama".
  std::string name;          // The model's own name; the file's stem where it has none.
  int num_layers = 0;
  int d_model = 0;         // Width of the residual stream.
  int d_embedding = 0;     // Of the embedding and the head where they are projected; else 0.
  int num_heads = 0;       // Query heads.
  int num_kv_heads = 0;    // Divides num_heads.
  int head_dim = 0;        // Of q and k and v.
  int d_ff = 0;            // Width of the feed-forward block.
  int vocabulary = 0;      // Rows of the embedding.
  int context_length = 0;  // Tokens the model was trained for.
  ExpertConfig experts;
  float norm_epsilon = 0.0f;
  float attention_scale = 0.0f;  // 1 / sqrt(head_dim) unless the file says otherwise.
  Activation activation = Activation::kSilu;

  int rotary_dim = 0;  // Rotated dimensions of a head, even.
  RopePairing rope_pairing = RopePairing::kInterleaved;
  // Angle per position of each pair, [rotary_dim / 2]: base and scaling rules are applied here.
  std::vector<double> rope_frequencies;
  float rope_attention_factor = 1.0f;          // Multiplies cosines and sines (YaRN).
  std::vector<double> local_rope_frequencies;  // [rotary_dim / 2], or empty

  // LongRoPE: beyond this many positions, all of them turn by long_rope_frequencies instead. 0:
  // one set of frequencies serves the whole context.
  int short_context_length = 0;
  std::vector<double> long_rope_frequencies;  // [rotary_dim / 2], or empty

  NormKind norm_kind = NormKind::kRms;
  bool norm_has_weight = true;      // False: norms in front of blocks only normalise (OLMo).
  float norm_weight_offset = 0.0f;  // What is added to the weights of norms: 1 for Gemma.
  NormPlacement norm_placement = NormPlacement::kInput;
  // x + attention(norm(x)) + mlp(norm'(x)): GPT-NeoX. Where a layer has no mlp_norm, norm' is norm.
  bool is_parallel = false;
  QkNorm qk_norm = QkNorm::kNone;
  float qkv_clip = 0.0f;  // No element of q, k and v is larger; 0: no limit (OLMo, MPT).
  PositionBias position_bias = PositionBias::kNone;
  float alibi_max_bias = 8.0f;  // The flattest slope is 2^-alibi_max_bias.
  float alibi_scale = 1.0f;     // Of all slopes: Falcon scales them with the scores.
  float embedding_scale = 1.0f;
  float residual_scale = 1.0f;  // Of what a block adds (Granite).
  float logit_scale = 1.0f;
  float attention_softcap = 0.0f;   // 0: none
  float logit_softcap = 0.0f;       // 0: none
  std::vector<LayerConfig> layers;  // [num_layers]; empty: all as LayerConfig's defaults

  bool has_experts(int index) const { return experts.count > 0 && !layer(index).is_dense; }
  int embedding_width() const { return d_embedding == 0 ? d_model : d_embedding; }
  LayerConfig layer(int index) const {
    return layers.empty() ? LayerConfig{} : layers[static_cast<size_t>(index)];
  }
};

}  // namespace vitrine
