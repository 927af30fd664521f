// All weights of a model as the backend holds them.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/tensor_map.h"

namespace vitrine {

struct LayerWeights {
  Buffer attention_norm;                        // [d_model]
  std::unique_ptr<PackedMatrix> qkv;            // [(heads + 2 kv_heads) * head_dim, d_model]
  std::unique_ptr<PackedMatrix> attention_out;  // [d_model, heads * head_dim]
  Buffer mlp_norm;                              // [d_model]
  std::unique_ptr<PackedMatrix> gate_up;        // [2 d_ff, d_model]
  std::unique_ptr<PackedMatrix> down;           // [d_model, d_ff]
};

struct Weights {
  std::unique_ptr<PackedMatrix> embedding;    // [vocabulary, d_model]
  std::vector<LayerWeights> layers;           // [num_layers]
  Buffer final_norm;                          // [d_model]
  std::unique_ptr<PackedMatrix> output_head;  // [vocabulary, d_model]; null when tied

  const PackedMatrix& head() const { return output_head ? *output_head : *embedding; }
  size_t bytes() const;
};

// Packs all tensors through `backend`, in the order of use, so that a forward pass walks memory
// once. RESOURCE_EXHAUSTED or UNIMPLEMENTED (a type that the backend does not offer) name the
// tensor.
absl::StatusOr<Weights> LoadWeights(const ModelTensors& tensors, int head_dim, Backend& backend);

}  // namespace vitrine
