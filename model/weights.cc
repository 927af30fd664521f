#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "kernels/block_formats.h"
#include "model/matrix_reader.h"
#include "model/status.h"

namespace vitrine {
namespace {

// What loading needs beside the tensors of one layer.
struct Loader {
  const ModelConfig& config;
  const WeightOptions& options;
  Backend& backend;
};

absl::Status CopyVector(const std::vector<float>& values, Backend& backend, Buffer& target) {
  if (values.empty()) return absl::OkStatus();
  VITRINE_ASSIGN_OR_RETURN(target, backend.Allocate(values.size() * sizeof(float)));
  backend.CopyToDevice(std::span<const float>(values), target.As<float>());
  return absl::OkStatus();
}

// The elements of all tensors that are there, one after the other, in f32.
absl::Status LoadVector(std::initializer_list<const WeightView*> tensors, const Loader& loader,
                        Buffer& target) {
  std::vector<float> values;
  for (const WeightView* tensor : tensors) {
    if (tensor->data != nullptr) AppendValues(*tensor, values);
  }
  return CopyVector(values, loader.backend, target);
}

// The weights of norms, one behind the other: what is stored, and what the model adds to it.
absl::Status LoadNorms(std::span<const WeightView> tensors, const Loader& loader, Buffer& target) {
  std::vector<float> values;
  for (const WeightView& tensor : tensors) {
    if (tensor.data != nullptr) AppendValues(tensor, values);
  }
  for (float& value : values) value += loader.config.norm_weight_offset;
  return CopyVector(values, loader.backend, target);
}

absl::Status LoadNorm(const WeightView& tensor, const Loader& loader, Buffer& target) {
  return LoadNorms({&tensor, 1}, loader, target);
}

// The norm in front of a block, which OLMo has without a weight.
absl::Status LoadInputNorm(const WeightView& tensor, const Loader& loader, Buffer& target) {
  if (loader.config.norm_has_weight) return LoadNorm(tensor, loader, target);
  const std::vector<float> ones(static_cast<size_t>(loader.config.d_model), 1.0f);
  return CopyVector(ones, loader.backend, target);
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> LoadMatrix(
    std::initializer_list<const WeightView*> tensors, RowLayout layout, const Loader& loader) {
  MatrixReader reader(loader.options.dtype);
  MatrixSource source{.layout = layout, .head_dim = loader.config.head_dim};
  for (const WeightView* tensor : tensors) {
    VITRINE_ASSIGN_OR_RETURN(MatrixPart part, reader.Read(*tensor));
    source.parts.push_back(std::move(part));
  }
  return loader.backend.PackMatrix(source);
}

// A norm over all heads of a row needs q and k as a whole, before they go to the cache by heads.
RowLayout QkvLayout(const ModelConfig& config) {
  return config.qk_norm == QkNorm::kAllHeads ? RowLayout::kStacked : RowLayout::kHeads;
}

absl::Status LoadAttention(const LayerTensors& tensors, const Loader& loader, LayerWeights& layer) {
  VITRINE_RETURN_IF_ERROR(LoadInputNorm(tensors.attention_norm, loader, layer.attention_norm));
  VITRINE_RETURN_IF_ERROR(
      LoadVector({&tensors.attention_norm_bias}, loader, layer.attention_norm_bias));
  VITRINE_ASSIGN_OR_RETURN(layer.qkv, LoadMatrix({&tensors.q, &tensors.k, &tensors.v},
                                                 QkvLayout(loader.config), loader));
  VITRINE_RETURN_IF_ERROR(
      LoadVector({&tensors.q_bias, &tensors.k_bias, &tensors.v_bias}, loader, layer.qkv_bias));
  VITRINE_RETURN_IF_ERROR(LoadNorms(tensors.q_norms, loader, layer.q_norm));
  VITRINE_RETURN_IF_ERROR(LoadNorms(tensors.k_norms, loader, layer.k_norm));
  VITRINE_RETURN_IF_ERROR(LoadVector({&tensors.q_norm_bias}, loader, layer.q_norm_bias));
  VITRINE_RETURN_IF_ERROR(LoadVector({&tensors.k_norm_bias}, loader, layer.k_norm_bias));
  VITRINE_ASSIGN_OR_RETURN(layer.attention_out,
                           LoadMatrix({&tensors.attention_out}, RowLayout::kStacked, loader));
  VITRINE_RETURN_IF_ERROR(
      LoadVector({&tensors.attention_out_bias}, loader, layer.attention_out_bias));
  return LoadNorm(tensors.attention_post_norm, loader, layer.attention_post_norm);
}

// The router keeps the type of the file: a rounded one would choose other experts.
absl::Status LoadExperts(const LayerTensors& tensors, const Loader& loader, LayerWeights& layer) {
  const WeightOptions kept_types;
  const Loader kept{loader.config, kept_types, loader.backend};
  if (tensors.shared_router.data == nullptr) {
    VITRINE_ASSIGN_OR_RETURN(layer.router,
                             LoadMatrix({&tensors.router}, RowLayout::kStacked, kept));
  } else {
    VITRINE_ASSIGN_OR_RETURN(layer.router, LoadMatrix({&tensors.router, &tensors.shared_router},
                                                      RowLayout::kStacked, kept));
  }
  for (const ExpertTensors& expert : tensors.experts) {
    ExpertWeights& weights = layer.experts.emplace_back();
    VITRINE_ASSIGN_OR_RETURN(weights.gate_up,
                             LoadMatrix({&expert.gate, &expert.up}, RowLayout::kGateUp, loader));
    VITRINE_ASSIGN_OR_RETURN(weights.down, LoadMatrix({&expert.down}, RowLayout::kStacked, loader));
  }
  return absl::OkStatus();
}

absl::Status LoadMlp(const LayerTensors& tensors, const Loader& loader, LayerWeights& layer) {
  // A parallel block without a norm of its own shares attention's.
  const bool has_norm = tensors.mlp_norm.data != nullptr || !loader.config.is_parallel;
  if (has_norm) {
    VITRINE_RETURN_IF_ERROR(LoadInputNorm(tensors.mlp_norm, loader, layer.mlp_norm));
  }
  VITRINE_RETURN_IF_ERROR(LoadVector({&tensors.mlp_norm_bias}, loader, layer.mlp_norm_bias));
  if (!tensors.experts.empty()) VITRINE_RETURN_IF_ERROR(LoadExperts(tensors, loader, layer));
  // Beside experts there may be no block that all rows pass.
  if (tensors.up.data == nullptr) return absl::OkStatus();
  if (tensors.gate.data == nullptr) {
    VITRINE_ASSIGN_OR_RETURN(layer.gate_up, LoadMatrix({&tensors.up}, RowLayout::kStacked, loader));
  } else {
    VITRINE_ASSIGN_OR_RETURN(layer.gate_up,
                             LoadMatrix({&tensors.gate, &tensors.up}, RowLayout::kGateUp, loader));
  }
  VITRINE_RETURN_IF_ERROR(
      LoadVector({&tensors.gate_bias, &tensors.up_bias}, loader, layer.gate_up_bias));
  VITRINE_ASSIGN_OR_RETURN(layer.down, LoadMatrix({&tensors.down}, RowLayout::kStacked, loader));
  VITRINE_RETURN_IF_ERROR(LoadVector({&tensors.down_bias}, loader, layer.down_bias));
  return LoadNorm(tensors.mlp_post_norm, loader, layer.mlp_post_norm);
}

// Normalises a row in place.
class EmbeddingNorm {
 public:
  EmbeddingNorm(const ModelTensors& tensors, float epsilon) : epsilon_(epsilon) {
    AppendValues(tensors.embedding_norm, weight_);
    AppendValues(tensors.embedding_norm_bias, bias_);
  }

  void Apply(std::vector<float>& row) const {
    const auto columns = static_cast<double>(row.size());
    double mean = 0.0;
    for (const float value : row) mean += value / columns;
    double variance = 0.0;
    for (const float value : row) variance += (value - mean) * (value - mean) / columns;
    const double scale = 1.0 / std::sqrt(variance + epsilon_);
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = static_cast<float>((row[i] - mean) * scale * weight_[i] + bias_[i]);
    }
  }

 private:
  const float epsilon_;
  std::vector<float> weight_;
  std::vector<float> bias_;
};

// Takes a row from the embedding's width to that of the residual stream.
class EmbeddingProjection {
 public:
  explicit EmbeddingProjection(const WeightView& matrix) {
    std::vector<float> values;
    AppendValues(matrix, values);
    const auto inputs = static_cast<size_t>(matrix.columns);
    output_.resize(values.size() / inputs);
    columns_.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      columns_[i % inputs * output_.size() + i / inputs] = values[i];
    }
  }

  void Apply(std::vector<float>& row) {
    std::ranges::fill(output_, 0.0f);
    const float* column = columns_.data();
    for (const float input : row) {
      for (float& output : output_) output += input * *column++;
    }
    row = output_;
  }

 private:
  std::vector<float> columns_;  // [inputs, outputs]
  std::vector<float> output_;
};

// What is done to an embedding depends on nothing but the token, so it is done to the table. A head
// that is tied to the table is tied to what it was before.
template <class Change>
absl::Status LoadChangedEmbedding(const ModelTensors& tensors, Change change, const Loader& loader,
                                  Weights& weights) {
  const WeightView& embedding = tensors.embedding;
  std::vector<float> values;
  std::vector<float> row;
  for (int64_t id = 0; id < embedding.rows; ++id) {
    row.resize(static_cast<size_t>(embedding.columns));
    DequantizeRow(embedding.dtype, embedding.row(id), embedding.columns, row.data());
    change.Apply(row);
    values.insert(values.end(), row.begin(), row.end());
  }
  const MatrixPart part = {.name = embedding.name,
                           .dtype = DType::kF32,
                           .data = std::as_bytes(std::span(values)).data(),
                           .rows = embedding.rows,
                           .columns = loader.config.d_model};
  VITRINE_ASSIGN_OR_RETURN(weights.embedding, loader.backend.PackMatrix({.parts = {part}}));
  VITRINE_ASSIGN_OR_RETURN(
      weights.output_head,
      LoadMatrix({tensors.output_head ? &*tensors.output_head : &tensors.embedding},
                 RowLayout::kStacked, loader));
  return absl::OkStatus();
}

absl::Status LoadEnds(const ModelTensors& tensors, const Loader& loader, Weights& weights) {
  VITRINE_RETURN_IF_ERROR(LoadInputNorm(tensors.final_norm, loader, weights.final_norm));
  VITRINE_RETURN_IF_ERROR(LoadVector({&tensors.final_norm_bias}, loader, weights.final_norm_bias));
  VITRINE_RETURN_IF_ERROR(LoadVector({&tensors.position_table}, loader, weights.position_table));
  VITRINE_RETURN_IF_ERROR(LoadVector({&tensors.output_bias}, loader, weights.output_bias));
  if (tensors.output_projection.data != nullptr) {
    VITRINE_ASSIGN_OR_RETURN(weights.output_projection,
                             LoadMatrix({&tensors.output_projection}, RowLayout::kStacked, loader));
  }
  if (tensors.embedding_norm.data != nullptr) {
    const EmbeddingNorm norm(tensors, loader.config.norm_epsilon);
    return LoadChangedEmbedding(tensors, norm, loader, weights);
  }
  if (tensors.embedding_projection.data != nullptr) {
    const EmbeddingProjection projection(tensors.embedding_projection);
    return LoadChangedEmbedding(tensors, projection, loader, weights);
  }
  VITRINE_ASSIGN_OR_RETURN(weights.embedding,
                           LoadMatrix({&tensors.embedding}, RowLayout::kStacked, loader));
  if (tensors.output_head) {
    VITRINE_ASSIGN_OR_RETURN(weights.output_head,
                             LoadMatrix({&*tensors.output_head}, RowLayout::kStacked, loader));
  }
  return absl::OkStatus();
}

size_t LayerBytes(const LayerWeights& layer) {
  size_t sum = 0;
  for (const auto* matrix :
       {&layer.qkv, &layer.attention_out, &layer.gate_up, &layer.down, &layer.router}) {
    if (*matrix != nullptr) sum += (*matrix)->bytes();
  }
  for (const ExpertWeights& expert : layer.experts) {
    sum += expert.gate_up->bytes() + expert.down->bytes();
  }
  for (const Buffer* buffer :
       {&layer.attention_norm, &layer.attention_norm_bias, &layer.qkv_bias, &layer.q_norm,
        &layer.k_norm, &layer.q_norm_bias, &layer.k_norm_bias, &layer.attention_out_bias,
        &layer.attention_post_norm, &layer.mlp_norm, &layer.mlp_norm_bias, &layer.gate_up_bias,
        &layer.down_bias, &layer.mlp_post_norm}) {
    sum += buffer->bytes();
  }
  return sum;
}

}  // namespace

size_t Weights::bytes() const {
  size_t sum = embedding->bytes() + position_table.bytes() + final_norm.bytes() +
               final_norm_bias.bytes() + output_bias.bytes();
  if (output_projection) sum += output_projection->bytes();
  if (output_head) sum += output_head->bytes();
  for (const LayerWeights& layer : layers) sum += LayerBytes(layer);
  return sum;
}

absl::StatusOr<Weights> LoadWeights(const ModelConfig& config, const ModelTensors& tensors,
                                    Backend& backend, const WeightOptions& options) {
  const Loader loader{config, options, backend};
  Weights weights;
  for (const LayerTensors& layer_tensors : tensors.layers) {
    LayerWeights& layer = weights.layers.emplace_back();
    VITRINE_RETURN_IF_ERROR(LoadAttention(layer_tensors, loader, layer));
    VITRINE_RETURN_IF_ERROR(LoadMlp(layer_tensors, loader, layer));
    if (options.progress) {
      options.progress(static_cast<int>(weights.layers.size()), config.num_layers);
    }
  }
  VITRINE_RETURN_IF_ERROR(LoadEnds(tensors, loader, weights));
  return weights;
}

}  // namespace vitrine
