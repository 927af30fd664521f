#include "model/weights.h"

#include <utility>

#include "kernels/block_formats.h"
#include "model/status.h"

namespace vitrine {
namespace {

MatrixPart PartOf(const TensorView& tensor) {
  return {.name = tensor.name,
          .dtype = tensor.dtype,
          .data = tensor.data,
          .rows = tensor.rows(),
          .columns = tensor.columns()};
}

absl::StatusOr<Buffer> LoadVector(const TensorView& tensor, Backend& backend) {
  std::vector<float> values(static_cast<size_t>(tensor.columns()));
  DequantizeRow(tensor.dtype, tensor.data, tensor.columns(), values.data());
  VITRINE_ASSIGN_OR_RETURN(Buffer buffer, backend.Allocate(values.size() * sizeof(float)));
  backend.CopyToDevice(std::span<const float>(values), buffer.As<float>());
  return buffer;
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> LoadMatrix(const TensorView& tensor,
                                                         Backend& backend) {
  return backend.PackMatrix({.parts = {PartOf(tensor)}});
}

absl::StatusOr<LayerWeights> LoadLayer(const LayerTensors& tensors, int head_dim,
                                       Backend& backend) {
  LayerWeights layer;
  VITRINE_ASSIGN_OR_RETURN(layer.attention_norm, LoadVector(tensors.attention_norm, backend));
  VITRINE_ASSIGN_OR_RETURN(
      layer.qkv,
      backend.PackMatrix({.parts = {PartOf(tensors.q), PartOf(tensors.k), PartOf(tensors.v)},
                          .layout = RowLayout::kHeads,
                          .head_dim = head_dim}));
  VITRINE_ASSIGN_OR_RETURN(layer.attention_out, LoadMatrix(tensors.attention_out, backend));
  VITRINE_ASSIGN_OR_RETURN(layer.mlp_norm, LoadVector(tensors.mlp_norm, backend));
  VITRINE_ASSIGN_OR_RETURN(layer.gate_up,
                           backend.PackMatrix({.parts = {PartOf(tensors.gate), PartOf(tensors.up)},
                                               .layout = RowLayout::kGateUp}));
  VITRINE_ASSIGN_OR_RETURN(layer.down, LoadMatrix(tensors.down, backend));
  return layer;
}

}  // namespace

size_t Weights::bytes() const {
  size_t sum = embedding->bytes() + final_norm.bytes();
  if (output_head) sum += output_head->bytes();
  for (const LayerWeights& layer : layers) {
    sum += layer.attention_norm.bytes() + layer.mlp_norm.bytes();
    for (const auto* matrix : {&layer.qkv, &layer.attention_out, &layer.gate_up, &layer.down}) {
      sum += (*matrix)->bytes();
    }
  }
  return sum;
}

absl::StatusOr<Weights> LoadWeights(const ModelTensors& tensors, int head_dim, Backend& backend) {
  Weights weights;
  for (const LayerTensors& layer_tensors : tensors.layers) {
    VITRINE_ASSIGN_OR_RETURN(LayerWeights layer, LoadLayer(layer_tensors, head_dim, backend));
    weights.layers.push_back(std::move(layer));
  }
  VITRINE_ASSIGN_OR_RETURN(weights.final_norm, LoadVector(tensors.final_norm, backend));
  VITRINE_ASSIGN_OR_RETURN(weights.embedding, LoadMatrix(tensors.embedding, backend));
  if (tensors.output_head) {
    VITRINE_ASSIGN_OR_RETURN(weights.output_head, LoadMatrix(*tensors.output_head, backend));
  }
  return weights;
}

}  // namespace vitrine
