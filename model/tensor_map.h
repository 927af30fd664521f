// Which tensor of a checkpoint plays which part in the transformer.
//
// A family is a row of names; the shapes follow from ModelConfig. Every tensor that the model needs
// must be there with its shape, and every tensor that is there must be used: an unused one is most
// often a feature that would silently be skipped.
#pragma once

#include <array>
#include <optional>
#include <string>
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

// How a tensor that holds q, k and v orders its rows.
enum class QkvOrder {
  kStacked,  // All of q, then k, then v: Phi 3
  kGrouped,  // For each key/value head its query heads, its key, its value: GPT-NeoX, Falcon 40B
};

// Rows and columns of a matrix that share a scale; 0: all of them.
struct Fp8Blocks {
  int rows = 0;
  int columns = 0;
};

// Names of the tensors; an empty one: the model has no such tensor. All but the output head's may
// follow `base_prefix`, which files of a bare model leave out; those of a layer follow
// `layer_prefix`, the layer's number and a dot.
struct TensorNames {
  std::string_view base_prefix = {};
  std::string_view embedding = {};
  std::string_view embedding_norm = {};  // Of each embedding before the first layer: Bloom
  std::string_view embedding_norm_bias = {};
  std::string_view embedding_projection = {};  // From the embedding's width to the stream's: OPT
  std::string_view output_projection = {};     // And back in front of the head.
  std::string_view position_table = {};
  int unused_positions = 0;  // Rows in front of position 0: OPT has two.
  std::string_view final_norm = {};
  std::string_view final_norm_bias = {};
  std::string_view output_head = {};
  std::string_view output_bias = {};
  OutputHead output_head_rule = OutputHead::kIfPresent;
  std::string_view layer_prefix = {};

  std::string_view attention_norm = {};
  std::string_view attention_norm_bias = {};
  // A layer holds the attention norm of the layer behind it, the last one the final norm: where
  // norms follow blocks, as in OPT 350M.
  bool holds_next_attention_norm = false;
  std::string_view q = {};
  std::string_view k = {};
  std::string_view v = {};
  std::string_view qkv = {};  // Instead of the three, as is its bias.
  QkvOrder qkv_order = QkvOrder::kStacked;
  std::string_view q_bias = {};
  std::string_view k_bias = {};
  std::string_view v_bias = {};
  std::string_view qkv_bias = {};
  std::string_view q_norm = {};  // With kOwnLayer: in front of a head's number and `head_suffix`.
  std::string_view k_norm = {};
  std::string_view head_suffix = {};  // Empty: the weights of all heads are one tensor.
  std::string_view q_norm_bias = {};
  std::string_view k_norm_bias = {};
  std::string_view attention_out = {};
  std::string_view attention_out_bias = {};
  std::string_view attention_post_norm = {};
  std::string_view mlp_norm = {};
  std::string_view mlp_norm_bias = {};
  std::string_view gate = {};
  std::string_view up = {};
  std::string_view gate_up = {};  // Rows of gate, then up; instead of the two.
  std::string_view gate_bias = {};
  std::string_view up_bias = {};
  std::string_view down = {};
  std::string_view down_bias = {};
  std::string_view mlp_post_norm = {};

  // Of layers with experts, instead of gate, up and down. Each expert has tensors of its own behind
  // `expert_prefix` and its number; without a prefix all of them share one.
  std::string_view router = {};
  std::string_view expert_prefix = {};
  std::string_view expert_gate = {};
  std::string_view expert_up = {};
  std::string_view expert_down = {};
  std::string_view shared_router = {};
  std::string_view shared_gate = {};
  std::string_view shared_up = {};
  std::string_view shared_down = {};

  // Matrices of the layers are stored [inputs, outputs]: GPT-2's Conv1D.
  bool is_transposed = false;
  // Matrices of the layers may be 8-bit floats, with a grid of scales beside them. Scales of what
  // they are multiplied with are not used.
  std::optional<Fp8Blocks> fp8_blocks = {};
  // Tables that the model computes itself: frequencies, causal masks.
  std::array<std::string_view, 4> ignored_suffixes = {};
};

// GGUF uses one set of names for all families (ggml/docs/gguf.md, "Standardized tensor names").
extern const TensorNames kGgufTensorNames;

// The scales of a matrix of 8-bit floats (OCP 8-bit floating point, 2023): element [r, c] of the
// tensor is multiplied by element [r / block_rows, c / block_columns] of a grid with `columns`
// columns.
struct Fp8Scales {
  const std::byte* data = nullptr;  // Null: the matrix is of another type.
  DType dtype = DType::kF32;        // Plain floats, unless
  bool are_powers = false;          // they are F8_E8M0: powers of two, one byte each.
  bool is_e5m2 = false;             // The matrix is F8_E5M2, not F8_E4M3.
  int64_t columns = 0;
  int64_t block_rows = 0;
  int64_t block_columns = 0;
};

// A matrix inside a tensor of a checkpoint, or a vector: one column.
//
// Its rows lie in runs of `run_rows`, whose beginnings are `run_stride` rows of the tensor apart,
// the first one at `first_row`.
struct WeightView {
  std::string name = {};  // Of the tensor.
  DType dtype = DType::kF32;
  const std::byte* data = nullptr;  // Of the tensor; null: the model has no such weight.
  int64_t tensor_rows = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t first_row = 0;
  int64_t run_rows = 0;
  int64_t run_stride = 0;
  bool is_transposed = false;  // The tensor is [columns, tensor_rows] instead.
  float scale = 1.0f;          // Of all elements, once they are read.
  // With scales `data` is one byte per element, and `dtype`, F32, what a MatrixReader makes of it.
  Fp8Scales scales = {};

  bool is_contiguous() const {
    return !is_transposed && rows == run_rows && scales.data == nullptr;
  }
  int64_t tensor_row(int64_t index) const {
    return first_row + index / run_rows * run_stride + index % run_rows;
  }
  const std::byte* row(int64_t index) const {
    return data + static_cast<size_t>(tensor_row(index)) * RowBytes(dtype, columns);
  }
};

struct ExpertTensors {
  WeightView gate;  // [experts.d_ff, d_model]
  WeightView up;    // [experts.d_ff, d_model]
  WeightView down;  // [d_model, experts.d_ff]
};

// A view without data: the model has no such tensor. In layers with experts gate, up and down are
// those of the shared one.
struct LayerTensors {
  WeightView attention_norm;  // [d_model]
  WeightView q;               // [num_heads * head_dim, d_model]
  WeightView k;               // [num_kv_heads * head_dim, d_model]
  WeightView v;               // [num_kv_heads * head_dim, d_model]
  WeightView attention_out;   // [d_model, num_heads * head_dim]
  WeightView mlp_norm;        // [d_model]
  WeightView gate;            // [d_ff, d_model]
  WeightView up;              // [d_ff, d_model]
  WeightView down;            // [d_model, d_ff]

  WeightView attention_norm_bias;  // [d_model]
  WeightView q_bias;               // [num_heads * head_dim]; q, k and v have one, or none has
  WeightView k_bias;               // [num_kv_heads * head_dim]
  WeightView v_bias;               // [num_kv_heads * head_dim]
  // [head_dim], [num_heads * head_dim] with kAllHeads; with kOwnLayer [num_heads, head_dim], or
  // num_heads times [head_dim].
  std::vector<WeightView> q_norms;
  std::vector<WeightView> k_norms;  // Likewise for num_kv_heads.
  WeightView q_norm_bias;           // [head_dim]
  WeightView k_norm_bias;           // [head_dim]
  WeightView attention_out_bias;    // [d_model]
  WeightView attention_post_norm;   // [d_model], norm of what attention returns
  WeightView mlp_norm_bias;         // [d_model]
  WeightView gate_bias;             // [d_ff]
  WeightView up_bias;               // [d_ff]; without `gate` the feed-forward block is not gated
  WeightView down_bias;             // [d_model]
  WeightView mlp_post_norm;         // [d_model], norm of what the feed-forward block returns

  WeightView router;                   // [experts.count, d_model]
  WeightView shared_router;            // [1, d_model]
  std::vector<ExpertTensors> experts;  // [experts.count]
};

struct ModelTensors {
  WeightView embedding;              // [vocabulary, embedding_width]
  WeightView embedding_projection;   // [d_model, embedding_width], or without data
  WeightView embedding_norm;         // [d_model], or without data
  WeightView embedding_norm_bias;    // [d_model], or without data
  std::vector<LayerTensors> layers;  // [num_layers]
  WeightView final_norm;             // [d_model]
  WeightView final_norm_bias;        // [d_model], or without data
  WeightView position_table;         // [context_length, d_model], or without data
  WeightView output_bias;            // [vocabulary], or without data
  WeightView output_projection;      // [embedding_width, d_model], or without data
  // [vocabulary, embedding_width]; none: the embedding serves.
  std::optional<WeightView> output_head;
};

// Views into `checkpoint`. Norms are F32, F16 or BF16; matrices are of any type. INVALID_ARGUMENT
// names the file, the tensor, and what was expected and found.
absl::StatusOr<ModelTensors> MapTensors(const ModelConfig& config, const Checkpoint& checkpoint,
                                        const TensorNames& names);

}  // namespace vitrine
