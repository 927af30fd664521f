#include "tests/gpu_check/synthetic_model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_storage.h"
#include "kernels/cuda/device_weights.h"
#include "model/tensor_map.h"
#include "model/weights.h"
#include "tests/cuda_emulator/device_array.h"
#include "tests/gpu_check/random_weights.h"
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

// Each tensor of a model begins at another place of the pool of random weights.
constexpr int64_t kTensorShift = 1028;
constexpr int kTensorsPerLayer = 7;
enum class LayerTensor { kQ, kK, kV, kAttentionOut, kGate, kUp, kDown };

constexpr int64_t kEmbeddingPlace = 0;
int64_t PlaceOf(int layer, LayerTensor tensor) {
  return kTensorShift * (1 + int64_t{layer} * kTensorsPerLayer + static_cast<int>(tensor));
}

float DeviationOf(const ModelShape& shape) {
  return 1.0f / std::sqrt(static_cast<float>(shape.d_model));
}

// Tensors as a file would have them, for backends whose weights come from the host.
class HostTensors {
 public:
  explicit HostTensors(const ModelShape& shape)
      : ones_(static_cast<size_t>(shape.d_model), 1.0f),
        pool_(RandomWeights(PoolSize(shape), DeviationOf(shape))) {
    tensors_.embedding = Matrix(shape.vocabulary, shape.d_model, kEmbeddingPlace);
    tensors_.output_head = tensors_.embedding;
    tensors_.final_norm = Norm();
    for (int i = 0; i < shape.layers; ++i) {
      LayerTensors layer;
      const auto matrix = [&](LayerTensor tensor, int64_t rows, int64_t columns) {
        return Matrix(rows, columns, PlaceOf(i, tensor));
      };
      layer.attention_norm = layer.mlp_norm = Norm();
      layer.q = matrix(LayerTensor::kQ, shape.QueryColumns(), shape.d_model);
      layer.k = matrix(LayerTensor::kK, shape.KvColumns(), shape.d_model);
      layer.v = matrix(LayerTensor::kV, shape.KvColumns(), shape.d_model);
      layer.attention_out = matrix(LayerTensor::kAttentionOut, shape.d_model, shape.QueryColumns());
      layer.gate = matrix(LayerTensor::kGate, shape.d_ff, shape.d_model);
      layer.up = matrix(LayerTensor::kUp, shape.d_ff, shape.d_model);
      layer.down = matrix(LayerTensor::kDown, shape.d_model, shape.d_ff);
      tensors_.layers.push_back(layer);
    }
  }
  HostTensors(const HostTensors&) = delete;
  HostTensors& operator=(const HostTensors&) = delete;

  const ModelTensors& tensors() const { return tensors_; }

 private:
  static size_t PoolSize(const ModelShape& shape) {
    const int64_t largest = int64_t{std::max(shape.vocabulary, shape.d_ff)} * shape.d_model;
    return static_cast<size_t>(largest + PlaceOf(shape.layers, LayerTensor::kQ));
  }
  static WeightView View(DType dtype, const void* data, int64_t rows, int64_t columns) {
    return {.name = "synthetic",
            .dtype = dtype,
            .data = static_cast<const std::byte*>(data),
            .tensor_rows = rows,
            .rows = rows,
            .columns = columns,
            .run_rows = rows};
  }
  WeightView Matrix(int64_t rows, int64_t columns, int64_t place) const {
    return View(DType::kBF16, pool_.data() + place, rows, columns);
  }
  WeightView Norm() const {
    return View(DType::kF32, ones_.data(), static_cast<int64_t>(ones_.size()), 1);
  }

  const std::vector<float> ones_;
  const std::vector<uint16_t> pool_;
  ModelTensors tensors_;
};

// The same weights, made on the device: those of 8 billion are there in a fraction of a second.
class DeviceTensors {
 public:
  DeviceTensors(Backend& backend, const ModelShape& shape) : backend_(backend), shape_(shape) {}

  Weights Make() const {
    Weights weights;
    weights.embedding = Matrix(RowLayout::kStacked, shape_.d_model,
                               {{.rows = shape_.vocabulary, .place = kEmbeddingPlace}});
    for (int i = 0; i < shape_.layers; ++i) weights.layers.push_back(Layer(i));
    weights.final_norm = Ones();
    gpu::CheckCuda(cudaDeviceSynchronize());
    return weights;
  }

 private:
  struct Part {
    int rows = 0;
    int64_t place = 0;
  };

  LayerWeights Layer(int i) const {
    const auto part = [&](LayerTensor tensor, int rows) -> Part {
      return {.rows = rows, .place = PlaceOf(i, tensor)};
    };
    LayerWeights layer;
    layer.attention_norm = Ones();
    layer.mlp_norm = Ones();
    layer.qkv = Matrix(
        RowLayout::kHeads, shape_.d_model,
        {part(LayerTensor::kQ, shape_.QueryColumns()), part(LayerTensor::kK, shape_.KvColumns()),
         part(LayerTensor::kV, shape_.KvColumns())});
    layer.attention_out = Matrix(RowLayout::kStacked, shape_.QueryColumns(),
                                 {part(LayerTensor::kAttentionOut, shape_.d_model)});
    layer.gate_up =
        Matrix(RowLayout::kGateUp, shape_.d_model,
               {part(LayerTensor::kGate, shape_.d_ff), part(LayerTensor::kUp, shape_.d_ff)});
    layer.down =
        Matrix(RowLayout::kStacked, shape_.d_ff, {part(LayerTensor::kDown, shape_.d_model)});
    return layer;
  }

  std::unique_ptr<PackedMatrix> Matrix(RowLayout layout, int columns,
                                       const std::vector<Part>& parts) const {
    int64_t rows = 0;
    for (const Part& part : parts) rows += part.rows;
    auto matrix =
        Required(cuda::CudaMatrix::CreateZeros(rows, columns, layout, /*stream=*/nullptr));
    RandomRows fill = {.matrix = matrix->pieces()[0].values.As<__nv_bfloat16>().data(),
                       .columns = columns,
                       .is_interleaved = layout == RowLayout::kGateUp,
                       .deviation = DeviationOf(shape_)};
    for (const Part& part : parts) {
      fill.rows = part.rows;
      fill.first = part.place;
      FillRandomRows(fill);
      fill.first_row += fill.is_interleaved ? cuda::kGatedGroup : part.rows;
    }
    return matrix;
  }

  Buffer Ones() const {
    const std::vector<float> ones(static_cast<size_t>(shape_.d_model), 1.0f);
    Buffer buffer = Required(backend_.Allocate(ones.size() * sizeof(float)));
    backend_.CopyToDevice(std::span<const float>(ones), buffer.As<float>());
    return buffer;
  }

  Backend& backend_;
  const ModelShape& shape_;
};

double LayerWeights(const ModelShape& shape) {
  const double attention = 2.0 * (shape.heads + shape.kv_heads) * shape.head_dim;
  return (attention + 3.0 * shape.d_ff) * shape.d_model;
}

}  // namespace

std::unique_ptr<TransformerRunner> CreateSynthetic(Backend& backend, const ModelShape& shape,
                                                   const TransformerLimits& limits) {
  ModelConfig config = ConfigOf(shape, limits.max_positions);
  Weights weights = backend.name() == "cuda"
                        ? DeviceTensors(backend, shape).Make()
                        : Required(LoadWeights(config, HostTensors(shape).tensors(), backend));
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
