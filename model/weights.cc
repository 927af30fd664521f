#include "model/weights.h"

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

// The elements of all tensors that are there, one after the other, in f32.
absl::Status LoadVector(std::initializer_list<const TensorView*> tensors, Backend& backend,
                        Buffer& target) {
  std::vector<float> values;
  for (const TensorView* tensor : tensors) {
    if (tensor->data == nullptr) continue;
    const int64_t count = tensor->rows() * tensor->columns();
    const size_t begin = values.size();
    values.resize(begin + static_cast<size_t>(count));
    DequantizeRow(tensor->dtype, tensor->data, count, values.data() + begin);
  }
  if (values.empty()) return absl::OkStatus();
  VITRINE_ASSIGN_OR_RETURN(target, backend.Allocate(values.size() * sizeof(float)));
  backend.CopyToDevice(std::span<const float>(values), target.As<float>());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> LoadMatrix(const TensorView& tensor,
                                                         Backend& backend) {
  return backend.PackMatrix({.parts = {PartOf(tensor)}});
}

// A norm over all heads of a row needs q and k as a whole, before they go to the cache by heads.
RowLayout QkvLayout(const ModelConfig& config) {
  return config.qk_norm == QkNorm::kAllHeads ? RowLayout::kStacked : RowLayout::kHeads;
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> LoadGateUp(const LayerTensors& tensors,
                                                         Backend& backend) {
  if (tensors.gate.data == nullptr) return LoadMatrix(tensors.up, backend);
  return backend.PackMatrix(
      {.parts = {PartOf(tensors.gate), PartOf(tensors.up)}, .layout = RowLayout::kGateUp});
}

absl::Status LoadAttention(const ModelConfig& config, const LayerTensors& tensors, Backend& backend,
                           LayerWeights& layer) {
  VITRINE_RETURN_IF_ERROR(LoadVector({&tensors.attention_norm}, backend, layer.attention_norm));
  VITRINE_RETURN_IF_ERROR(
      LoadVector({&tensors.attention_norm_bias}, backend, layer.attention_norm_bias));
  VITRINE_ASSIGN_OR_RETURN(
      layer.qkv,
      backend.PackMatrix({.parts = {PartOf(tensors.q), PartOf(tensors.k), PartOf(tensors.v)},
                          .layout = QkvLayout(config),
                          .head_dim = config.head_dim}));
  VITRINE_RETURN_IF_ERROR(
      LoadVector({&tensors.q_bias, &tensors.k_bias, &tensors.v_bias}, backend, layer.qkv_bias));
  VITRINE_RETURN_IF_ERROR(LoadVector({&tensors.q_norm}, backend, layer.q_norm));
  VITRINE_RETURN_IF_ERROR(LoadVector({&tensors.k_norm}, backend, layer.k_norm));
  VITRINE_ASSIGN_OR_RETURN(layer.attention_out, LoadMatrix(tensors.attention_out, backend));
  VITRINE_RETURN_IF_ERROR(
      LoadVector({&tensors.attention_out_bias}, backend, layer.attention_out_bias));
  return LoadVector({&tensors.attention_post_norm}, backend, layer.attention_post_norm);
}

absl::Status LoadMlp(const LayerTensors& tensors, Backend& backend, LayerWeights& layer) {
  VITRINE_RETURN_IF_ERROR(LoadVector({&tensors.mlp_norm}, backend, layer.mlp_norm));
  VITRINE_RETURN_IF_ERROR(LoadVector({&tensors.mlp_norm_bias}, backend, layer.mlp_norm_bias));
  VITRINE_ASSIGN_OR_RETURN(layer.gate_up, LoadGateUp(tensors, backend));
  VITRINE_RETURN_IF_ERROR(
      LoadVector({&tensors.gate_bias, &tensors.up_bias}, backend, layer.gate_up_bias));
  VITRINE_ASSIGN_OR_RETURN(layer.down, LoadMatrix(tensors.down, backend));
  VITRINE_RETURN_IF_ERROR(LoadVector({&tensors.down_bias}, backend, layer.down_bias));
  return LoadVector({&tensors.mlp_post_norm}, backend, layer.mlp_post_norm);
}

size_t LayerBytes(const LayerWeights& layer) {
  size_t sum = 0;
  for (const auto* matrix : {&layer.qkv, &layer.attention_out, &layer.gate_up, &layer.down}) {
    sum += (*matrix)->bytes();
  }
  for (const Buffer* buffer :
       {&layer.attention_norm, &layer.attention_norm_bias, &layer.qkv_bias, &layer.q_norm,
        &layer.k_norm, &layer.attention_out_bias, &layer.attention_post_norm, &layer.mlp_norm,
        &layer.mlp_norm_bias, &layer.gate_up_bias, &layer.down_bias, &layer.mlp_post_norm}) {
    sum += buffer->bytes();
  }
  return sum;
}

}  // namespace

size_t Weights::bytes() const {
  size_t sum = embedding->bytes() + position_table.bytes() + final_norm.bytes() +
               final_norm_bias.bytes() + output_bias.bytes();
  if (output_head) sum += output_head->bytes();
  for (const LayerWeights& layer : layers) sum += LayerBytes(layer);
  return sum;
}

absl::StatusOr<Weights> LoadWeights(const ModelConfig& config, const ModelTensors& tensors,
                                    Backend& backend) {
  Weights weights;
  for (const LayerTensors& layer_tensors : tensors.layers) {
    LayerWeights& layer = weights.layers.emplace_back();
    VITRINE_RETURN_IF_ERROR(LoadAttention(config, layer_tensors, backend, layer));
    VITRINE_RETURN_IF_ERROR(LoadMlp(layer_tensors, backend, layer));
  }
  VITRINE_RETURN_IF_ERROR(LoadVector({&tensors.final_norm}, backend, weights.final_norm));
  VITRINE_RETURN_IF_ERROR(LoadVector({&tensors.final_norm_bias}, backend, weights.final_norm_bias));
  VITRINE_RETURN_IF_ERROR(LoadVector({&tensors.position_table}, backend, weights.position_table));
  VITRINE_ASSIGN_OR_RETURN(weights.embedding, LoadMatrix(tensors.embedding, backend));
  if (tensors.output_head) {
    VITRINE_ASSIGN_OR_RETURN(weights.output_head, LoadMatrix(*tensors.output_head, backend));
  }
  VITRINE_RETURN_IF_ERROR(LoadVector({&tensors.output_bias}, backend, weights.output_bias));
  return weights;
}

}  // namespace vitrine
