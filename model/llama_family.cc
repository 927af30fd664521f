#include "model/llama_family.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/quote.h"
#include "model/rope_frequencies.h"
#include "model/status.h"

namespace vitrine {
namespace {

constexpr std::string_view kFrequencyFactors = "rope_freqs.weight";
// Rows of q and k permuted for interleaved pairs: the only layout that files use.
constexpr std::string_view kMetaLayout = "Meta AI original pth";

absl::Status ReadSizes(GgufConfigReader& reader, ModelConfig& config) {
  VITRINE_ASSIGN_OR_RETURN(config.num_layers, reader.Int("block_count", 1, kMaxLayers));
  VITRINE_ASSIGN_OR_RETURN(config.d_model, reader.Int("embedding_length", 1, kMaxWidth));
  VITRINE_ASSIGN_OR_RETURN(config.d_ff, reader.Int("feed_forward_length", 1, kMaxWidth));
  VITRINE_ASSIGN_OR_RETURN(config.context_length,
                           reader.Int("context_length", 1, std::numeric_limits<int32_t>::max()));
  VITRINE_ASSIGN_OR_RETURN(const double epsilon,
                           reader.PositiveFloat("attention.layer_norm_rms_epsilon"));
  config.norm_epsilon = static_cast<float>(epsilon);
  return absl::OkStatus();
}

absl::Status ReadHeads(GgufConfigReader& reader, ModelConfig& config) {
  VITRINE_ASSIGN_OR_RETURN(config.num_heads, reader.Int("attention.head_count", 1, kMaxHeads));
  VITRINE_ASSIGN_OR_RETURN(config.num_kv_heads, reader.Int("attention.head_count_kv", 1,
                                                           config.num_heads, config.num_heads));
  if (config.num_heads % config.num_kv_heads != 0) {
    return reader.Error("attention.head_count_kv",
                        absl::StrCat("is ", config.num_kv_heads, ", which does not divide ",
                                     config.num_heads, " heads"));
  }
  if (!reader.Has("attention.key_length") && config.d_model % config.num_heads != 0) {
    return reader.Error("embedding_length",
                        absl::StrCat("is ", config.d_model, ", which is not a multiple of ",
                                     config.num_heads, " heads"));
  }
  VITRINE_ASSIGN_OR_RETURN(config.head_dim, reader.Int("attention.key_length", 2, kMaxHeadDim,
                                                       config.d_model / config.num_heads));
  if (config.head_dim < 2 || config.head_dim > kMaxHeadDim || config.head_dim % 2 != 0) {
    return reader.Error("attention.head_count",
                        absl::StrCat("makes heads of ", config.head_dim,
                                     " dimensions, expected an even number up to ", kMaxHeadDim));
  }
  VITRINE_ASSIGN_OR_RETURN(const int value_length,
                           reader.Int("attention.value_length", 1, kMaxHeadDim, config.head_dim));
  if (value_length != config.head_dim) {
    return reader.Unsupported("attention.value_length",
                              absl::StrCat("is ", value_length, ", but heads of keys have ",
                                           config.head_dim, " dimensions: not supported"));
  }
  VITRINE_ASSIGN_OR_RETURN(
      const double scale,
      reader.PositiveFloat("attention.scale", 1.0 / std::sqrt(config.head_dim)));
  config.attention_scale = static_cast<float>(scale);
  return absl::OkStatus();
}

// The factor of linear scaling (position interpolation, Chen et al., 2023); 1 without scaling.
absl::StatusOr<double> ReadLinearFactor(GgufConfigReader& reader) {
  // A file without a type but with a factor means linear: older files do not write the type.
  VITRINE_ASSIGN_OR_RETURN(const std::string_view type,
                           reader.String("rope.scaling.type", "linear"));
  if (type != "linear" && type != "none") {
    return reader.Unsupported("rope.scaling.type",
                              absl::StrCat("is ", Quote(type), ", which is not supported"));
  }
  VITRINE_ASSIGN_OR_RETURN(const double old_factor, reader.PositiveFloat("rope.scale_linear", 1.0));
  VITRINE_ASSIGN_OR_RETURN(const double factor,
                           reader.PositiveFloat("rope.scaling.factor", old_factor));
  if (type == "none" && factor != 1.0) {
    return reader.Error("rope.scaling.type",
                        absl::StrCat("is \"none\", but the scaling factor is ", factor));
  }
  return factor;
}

// llama 3.1 files hold, per pair, what its frequency is divided by.
absl::Status DivideByFactors(const GgufFile& file, std::vector<double>& frequencies) {
  const TensorView* factors = file.Find(kFrequencyFactors);
  if (factors == nullptr) return absl::OkStatus();
  const auto error = [&](const std::string& rule) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.label(), ": tensor ", Quote(kFrequencyFactors), " ", rule));
  };
  const auto pairs = static_cast<int64_t>(frequencies.size());
  if (factors->dtype != DType::kF32 || factors->shape != std::vector<int64_t>{pairs}) {
    return error(absl::StrCat("is not F32 of shape [", pairs, "]"));
  }
  for (size_t i = 0; i < frequencies.size(); ++i) {
    float factor = 0.0f;
    std::memcpy(&factor, factors->data + i * sizeof(float), sizeof(float));
    if (!std::isfinite(factor) || factor <= 0.0f) {
      return error(absl::StrCat("holds ", factor, ", expected finite numbers above 0"));
    }
    frequencies[i] /= factor;
  }
  return absl::OkStatus();
}

absl::Status ReadRope(GgufConfigReader& reader, ModelConfig& config) {
  VITRINE_ASSIGN_OR_RETURN(config.rotary_dim,
                           reader.Int("rope.dimension_count", 2, config.head_dim, config.head_dim));
  if (config.rotary_dim % 2 != 0) {
    return reader.Error("rope.dimension_count",
                        absl::StrCat("is ", config.rotary_dim, ", expected an even number"));
  }
  VITRINE_ASSIGN_OR_RETURN(const double base, reader.PositiveFloat("rope.freq_base", 10000.0));
  if (base < 1.0) {
    return reader.Error("rope.freq_base", absl::StrCat("is ", base, ", expected at least 1"));
  }
  VITRINE_ASSIGN_OR_RETURN(const double factor, ReadLinearFactor(reader));
  config.rope_pairing = RopePairing::kInterleaved;
  config.rope_frequencies = LinearRopeFrequencies(config.rotary_dim, base, factor);
  // Where the frequencies come from is told; what they are stands in the factors.
  reader.Ignore("rope.scaling.original_context_length");
  reader.Ignore("rope.scaling.finetuned");
  return DivideByFactors(reader.file(), config.rope_frequencies);
}

absl::Status ReadVocabulary(GgufConfigReader& reader, ModelConfig& config) {
  const GgufFile& file = reader.file();
  const TensorView* embedding = file.Find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2 || embedding->rows() > kMaxVocabulary) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.label(), ": tensor \"token_embd.weight\" is missing or not a matrix of ",
                     "at most ", kMaxVocabulary, " rows"));
  }
  config.vocabulary = static_cast<int>(embedding->rows());
  VITRINE_ASSIGN_OR_RETURN(const int stated,
                           reader.Int("vocab_size", 1, kMaxVocabulary, config.vocabulary));
  if (stated != config.vocabulary) {
    return reader.Error("vocab_size",
                        absl::StrCat("is ", stated, ", but \"token_embd.weight\" has ",
                                     config.vocabulary, " rows"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ReadLlamaConfig(GgufConfigReader& reader) {
  ModelConfig config;
  VITRINE_RETURN_IF_ERROR(ReadSizes(reader, config));
  VITRINE_RETURN_IF_ERROR(ReadHeads(reader, config));
  VITRINE_RETURN_IF_ERROR(ReadRope(reader, config));
  VITRINE_RETURN_IF_ERROR(ReadVocabulary(reader, config));
  VITRINE_ASSIGN_OR_RETURN(const std::string_view layout,
                           reader.String("tensor_data_layout", kMetaLayout));
  if (layout != kMetaLayout) {
    return reader.Unsupported("tensor_data_layout",
                              absl::StrCat("is ", Quote(layout), ", which is not supported"));
  }
  config.activation = Activation::kSilu;
  return config;
}

}  // namespace vitrine
