// Which tensor of a checkpoint plays which part in the transformer.
//
// A family is a row of names; the shapes follow from ModelConfig. Every tensor that the model needs
// must be there with its shape, and every tensor that is there must be used: an unused one is most
// often a feature that would silently be skipped.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/checkpoint.h"
#include "model/config.h"

namespace vitrine {

// Where the output head comes from.
enum class OutputHead {
  kIfPresent,  // An own one where the file has it, else the embedding.
  kOwn,        // Its own tensor, which must be there.
  kTied,       // The embedding; a copy of it beside it must be one, bit for bit.
};

// Names of the tensors; an empty one: the model has no such tensor. Those of a layer follow
// `layer_prefix`, the layer's number and a dot.
struct TensorNames {
  std::string_view embedding;
  std::string_view final_norm;
  std::string_view output_head;
  OutputHead output_head_rule = OutputHead::kIfPresent;
  std::string_view layer_prefix;

  std::string_view attention_norm = {};
  std::string_view q = {};
  std::string_view k = {};
  std::string_view v = {};
  std::string_view qkv = {};  // Rows of q, then k, then v; instead of the three.
  std::string_view q_bias = {};
  std::string_view k_bias = {};
  std::string_view v_bias = {};
  std::string_view q_norm = {};
  std::string_view k_norm = {};
  std::string_view attention_out = {};
  std::string_view attention_out_bias = {};
  std::string_view attention_post_norm = {};
  std::string_view mlp_norm = {};
  std::string_view gate = {};
  std::string_view up = {};
  std::string_view gate_up = {};  // Rows of gate, then up; instead of the two.
  std::string_view gate_bias = {};
  std::string_view up_bias = {};
  std::string_view down = {};
  std::string_view down_bias = {};
  std::string_view mlp_post_norm = {};
  std::string_view ignored_suffix = {};  // Tables that the model computes itself: frequencies.
};

// GGUF uses one set of names for all families (ggml/docs/gguf.md, "Standardized tensor names").
extern const TensorNames kGgufTensorNames;

// A view without data: the model has no such tensor.
struct LayerTensors {
  TensorView attention_norm;  // [d_model]
  TensorView q;               // [num_heads * head_dim, d_model]
  TensorView k;               // [num_kv_heads * head_dim, d_model]
  TensorView v;               // [num_kv_heads * head_dim, d_model]
  TensorView attention_out;   // [d_model, num_heads * head_dim]
  TensorView mlp_norm;        // [d_model]
  TensorView gate;            // [d_ff, d_model]
  TensorView up;              // [d_ff, d_model]
  TensorView down;            // [d_model, d_ff]

  TensorView attention_norm_bias;  // [d_model]
  TensorView q_bias;               // [num_heads * head_dim]; q, k and v have one, or none has
  TensorView k_bias;               // [num_kv_heads * head_dim]
  TensorView v_bias;               // [num_kv_heads * head_dim]
  TensorView q_norm;               // [head_dim], or [num_heads * head_dim] with kAllHeads
  TensorView k_norm;               // [head_dim], or [num_kv_heads * head_dim]
  TensorView attention_out_bias;   // [d_model]
  TensorView attention_post_norm;  // [d_model], norm of what attention returns
  TensorView mlp_norm_bias;        // [d_model]
  TensorView gate_bias;            // [d_ff]
  TensorView up_bias;              // [d_ff]; without `gate` the feed-forward block is not gated
  TensorView down_bias;            // [d_model]
  TensorView mlp_post_norm;        // [d_model], norm of what the feed-forward block returns
};

struct ModelTensors {
  TensorView embedding;                   // [vocabulary, d_model]
  std::vector<LayerTensors> layers;       // [num_layers]
  TensorView final_norm;                  // [d_model]
  TensorView final_norm_bias;             // [d_model], or without data
  TensorView position_table;              // [positions, d_model], or without data
  TensorView output_bias;                 // [vocabulary], or without data
  std::optional<TensorView> output_head;  // [vocabulary, d_model]; none: the embedding serves.
};

// Views into `checkpoint`. Norms are F32, F16 or BF16; matrices are of any type. INVALID_ARGUMENT
// names the file, the tensor, and what was expected and found.
absl::StatusOr<ModelTensors> MapTensors(const ModelConfig& config, const Checkpoint& checkpoint,
                                        const TensorNames& names);

}  // namespace vitrine
