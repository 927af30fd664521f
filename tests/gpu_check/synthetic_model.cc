#include "tests/gpu_check/synthetic_model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/block_formats.h"
#include "model/tensor_map.h"
#include "model/weights.h"
#include "tests/gpu_check/required.h"

namespace vitrine::gpu_check {
namespace {

ModelConfig ConfigOf(const ModelShape& shape, int context_length) {
  ModelConfig config;
  config.architecture = "llama";
  config.name = "synthetic";
  config.num_layers = shape.layers;
  config.d_model = shape.d_model;
  config.num_heads = shape.heads;
  config.num_kv_heads = shape.kv_heads;
  config.head_dim = shape.head_dim;
  config.d_ff = shape.d_ff;
  config.vocabulary = shape.vocabulary;
  config.context_length = context_length;
  config.norm_epsilon = 1e-5f;
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  config.rotary_dim = shape.head_dim;
  config.rope_pairing = RopePairing::kHalfSplit;
  for (int i = 0; i < shape.head_dim / 2; ++i) {
    config.rope_frequencies.push_back(std::pow(500000.0, -2.0 * i / shape.head_dim));
  }
  return config;
}

// Views of one pool of weights, which all matrices share.
class Pool {
 public:
  Pool(int64_t elements, float deviation) : ones_(1 << 20, 1.0f) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0f, deviation);
    std::vector<uint16_t> period(1 << 16);
    for (uint16_t& bits : period) bits = Bf16FromFloat(normal(random));
    weights_.resize(static_cast<size_t>(elements));
    // Shifted from repetition to repetition, so that rows differ.
    for (size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] = period[(i + i / period.size() * 977) % period.size()];
    }
  }

  WeightView Matrix(int64_t rows, int64_t columns) const {
    return {.name = "synthetic",
            .dtype = DType::kBF16,
            .data = reinterpret_cast<const std::byte*>(weights_.data()),
            .tensor_rows = rows,
            .rows = rows,
            .columns = columns,
            .run_rows = rows};
  }
  WeightView Norm(int64_t rows) const {
    return {.name = "synthetic",
            .dtype = DType::kF32,
            .data = reinterpret_cast<const std::byte*>(ones_.data()),
            .tensor_rows = rows,
            .rows = rows,
            .columns = 1,
            .run_rows = rows};
  }

 private:
  std::vector<uint16_t> weights_;
  std::vector<float> ones_;
};

ModelTensors TensorsOf(const ModelShape& shape, const Pool& pool) {
  ModelTensors tensors;
  tensors.embedding = pool.Matrix(shape.vocabulary, shape.d_model);
  tensors.output_head = tensors.embedding;
  tensors.final_norm = pool.Norm(shape.d_model);
  const int64_t q_rows = int64_t{shape.heads} * shape.head_dim;
  const int64_t kv_rows = int64_t{shape.kv_heads} * shape.head_dim;
  for (int i = 0; i < shape.layers; ++i) {
    LayerTensors layer;
    layer.attention_norm = layer.mlp_norm = pool.Norm(shape.d_model);
    layer.q = pool.Matrix(q_rows, shape.d_model);
    layer.k = layer.v = pool.Matrix(kv_rows, shape.d_model);
    layer.attention_out = pool.Matrix(shape.d_model, q_rows);
    layer.gate = layer.up = pool.Matrix(shape.d_ff, shape.d_model);
    layer.down = pool.Matrix(shape.d_model, shape.d_ff);
    tensors.layers.push_back(layer);
  }
  return tensors;
}

double LayerWeights(const ModelShape& shape) {
  const double attention = 2.0 * (shape.heads + shape.kv_heads) * shape.head_dim;
  return (attention + 3.0 * shape.d_ff) * shape.d_model;
}

}  // namespace

std::unique_ptr<TransformerRunner> CreateSynthetic(Backend& backend, const ModelShape& shape,
                                                   const TransformerLimits& limits) {
  const int64_t largest = int64_t{std::max(shape.vocabulary, shape.d_ff)} * shape.d_model;
  const Pool pool(largest, 1.0f / std::sqrt(static_cast<float>(shape.d_model)));
  ModelConfig config = ConfigOf(shape, limits.max_positions);
  Weights weights = Required(LoadWeights(config, TensorsOf(shape, pool), backend));
  return Required(
      TransformerRunner::Create(backend, std::move(config), std::move(weights), limits));
}

double WeightBytes(const ModelShape& shape) {
  return 2 * (shape.layers * LayerWeights(shape) +
              static_cast<double>(shape.vocabulary) * shape.d_model);
}

double KvBytesPerToken(const ModelShape& shape) {
  return 2.0 * 2 * shape.layers * shape.kv_heads * shape.head_dim;
}

}  // namespace vitrine::gpu_check
