// All weights of a model as the backend holds them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/tensor_map.h"

namespace vitrine {

struct ExpertWeights {
  std::unique_ptr<PackedMatrix> gate_up;  // [2 experts.d_ff, d_model]
  std::unique_ptr<PackedMatrix> down;     // [d_model, experts.d_ff]
};

// Empty buffers and null matrices: the model has no such weight. In a layer with experts, gate_up
// and down are those of the shared expert, whose router row is the last.
struct LayerWeights {
  Buffer attention_norm;              // [d_model]
  Buffer attention_norm_bias;         // [d_model]
  std::unique_ptr<PackedMatrix> qkv;  // [(heads + 2 kv_heads) * head_dim, d_model]
  Buffer qkv_bias;                    // [(heads + 2 kv_heads) * head_dim]
  Buffer q_norm;                      // See RopeKvTarget.
  Buffer k_norm;
  Buffer q_norm_bias;
  Buffer k_norm_bias;
  std::unique_ptr<PackedMatrix> attention_out;  // [d_model, heads * head_dim]
  Buffer attention_out_bias;                    // [d_model]
  Buffer attention_post_norm;                   // [d_model]
  Buffer mlp_norm;                              // [d_model]
  Buffer mlp_norm_bias;                         // [d_model]
  std::unique_ptr<PackedMatrix> gate_up;        // [2 d_ff, d_model], or [d_ff, d_model] ungated
  Buffer gate_up_bias;                          // [2 d_ff], or [d_ff]
  std::unique_ptr<PackedMatrix> down;           // [d_model, d_ff]
  Buffer down_bias;                             // [d_model]
  Buffer mlp_post_norm;                         // [d_model]
  std::unique_ptr<PackedMatrix> router;         // [experts.count (+ 1), d_model]
  std::vector<ExpertWeights> experts;           // [experts.count]
};

struct Weights {
  std::unique_ptr<PackedMatrix> embedding;          // [vocabulary, d_model]
  Buffer position_table;                            // [positions, d_model]
  std::vector<LayerWeights> layers;                 // [num_layers]
  Buffer final_norm;                                // [d_model]
  Buffer final_norm_bias;                           // [d_model]
  std::unique_ptr<PackedMatrix> output_projection;  // [d_embedding, d_model], or null
  std::unique_ptr<PackedMatrix> output_head;        // [vocabulary, embedding_width]; null when tied
  Buffer output_bias;                               // [vocabulary]

  const PackedMatrix& head() const { return output_head ? *output_head : *embedding; }
  size_t bytes() const;
};

struct WeightOptions {
  // What all matrices become, whatever the file holds; none: they stay what they are.
  std::optional<DType> dtype = {};
  // Called after each layer with the number of layers that are loaded, and of all.
  std::function<void(int, int)> progress = {};
};

// Packs all tensors through `backend`, in the order of use, so that a forward pass walks memory
// once. RESOURCE_EXHAUSTED, UNIMPLEMENTED (a type that the backend does not offer) and
// INVALID_ARGUMENT (a matrix that cannot become options.dtype) name the tensor.
absl::StatusOr<Weights> LoadWeights(const ModelConfig& config, const ModelTensors& tensors,
                                    Backend& backend, const WeightOptions& options = {});

}  // namespace vitrine
