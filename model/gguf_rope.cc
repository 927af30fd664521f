#include "model/gguf_rope.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/quote.h"
#include "model/rope_frequencies.h"
#include "model/status.h"

namespace vitrine {
namespace {

constexpr std::string_view kFactors = "rope_freqs.weight";  // Llama 3.1
constexpr std::string_view kShortFactors = "rope_factors_short.weight";
constexpr std::string_view kLongFactors = "rope_factors_long.weight";

// Divides each frequency by its entry in a tensor that must be there.
absl::Status DivideByFactors(const Checkpoint& file, std::string_view name,
                             std::vector<double>& frequencies) {
  const auto error = [&](const std::string& rule) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.label(), ": tensor ", Quote(name), " ", rule));
  };
  const TensorView* factors = file.Find(name);
  if (factors == nullptr) return error("is missing");
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

absl::StatusOr<int> ReadOriginalLength(GgufConfigReader& reader, const ModelConfig& config) {
  return reader.Int("rope.scaling.original_context_length", 1, std::numeric_limits<int32_t>::max(),
                    config.context_length);
}

// The factor of linear scaling (position interpolation, Chen et al., 2023); 1 without scaling.
absl::StatusOr<double> ReadLinearFactor(GgufConfigReader& reader, std::string_view type) {
  VITRINE_ASSIGN_OR_RETURN(const double old_factor, reader.PositiveFloat("rope.scale_linear", 1.0));
  VITRINE_ASSIGN_OR_RETURN(const double factor,
                           reader.PositiveFloat("rope.scaling.factor", old_factor));
  if (type == "none" && factor != 1.0) {
    return reader.Error("rope.scaling.type",
                        absl::StrCat("is \"none\", but the scaling factor is ", factor));
  }
  // Where the frequencies come from is told; what they are stands in the factors.
  reader.Ignore("rope.scaling.original_context_length");
  return factor;
}

absl::Status ReadYarn(GgufConfigReader& reader, double base, ModelConfig& config) {
  YarnScaling yarn;
  VITRINE_ASSIGN_OR_RETURN(yarn.original_length, ReadOriginalLength(reader, config));
  VITRINE_ASSIGN_OR_RETURN(yarn.factor, reader.PositiveFloat("rope.scaling.factor"));
  VITRINE_ASSIGN_OR_RETURN(yarn.fast_turns,
                           reader.PositiveFloat("rope.scaling.yarn_beta_fast", yarn.fast_turns));
  VITRINE_ASSIGN_OR_RETURN(yarn.slow_turns,
                           reader.PositiveFloat("rope.scaling.yarn_beta_slow", yarn.slow_turns));
  for (const std::string_view key :
       {"rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"}) {
    VITRINE_ASSIGN_OR_RETURN(const double share, reader.PositiveFloat(key, 1.0));
    if (share != 1.0) {
      return reader.Unsupported(key, absl::StrCat("is ", share, ", which is not supported"));
    }
  }
  if (base <= 1.0) return reader.Unsupported("rope.freq_base", "is 1, where yarn has no meaning");
  config.rope_frequencies = YarnRopeFrequencies(config.rotary_dim, base, yarn);
  config.rope_attention_factor = static_cast<float>(YarnAttentionFactor(yarn.factor));
  return absl::OkStatus();
}

absl::Status ReadLongRope(GgufConfigReader& reader, double base, ModelConfig& config) {
  VITRINE_ASSIGN_OR_RETURN(config.short_context_length, ReadOriginalLength(reader, config));
  const double stretch = static_cast<double>(config.context_length) / config.short_context_length;
  VITRINE_ASSIGN_OR_RETURN(
      const double attention_factor,
      reader.PositiveFloat("rope.scaling.attn_factor",
                           LongRopeAttentionFactor(stretch, config.short_context_length)));
  config.rope_attention_factor = static_cast<float>(attention_factor);
  config.rope_frequencies = RopeFrequencies(config.rotary_dim, base);
  config.long_rope_frequencies = config.rope_frequencies;
  VITRINE_RETURN_IF_ERROR(
      DivideByFactors(reader.tensors(), kShortFactors, config.rope_frequencies));
  return DivideByFactors(reader.tensors(), kLongFactors, config.long_rope_frequencies);
}

}  // namespace

absl::Status ReadGgufRope(GgufConfigReader& reader, RopePairing pairing, ModelConfig& config) {
  config.rope_pairing = pairing;
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
  reader.Ignore("rope.scaling.finetuned");
  // A file without a type but with a factor means linear, one with two sets of factors LongRoPE:
  // older files do not write the type.
  const bool has_sets = reader.tensors().Find(kLongFactors) != nullptr;
  VITRINE_ASSIGN_OR_RETURN(const std::string_view type,
                           reader.String("rope.scaling.type", has_sets ? "longrope" : "linear"));
  if (type == "longrope") return ReadLongRope(reader, base, config);
  if (type == "yarn") return ReadYarn(reader, base, config);
  if (type != "linear" && type != "none") {
    return reader.Unsupported("rope.scaling.type",
                              absl::StrCat("is ", Quote(type), ", which is not supported"));
  }
  VITRINE_ASSIGN_OR_RETURN(const double factor, ReadLinearFactor(reader, type));
  config.rope_frequencies = LinearRopeFrequencies(config.rotary_dim, base, factor);
  if (reader.tensors().Find(kFactors) == nullptr) return absl::OkStatus();
  return DivideByFactors(reader.tensors(), kFactors, config.rope_frequencies);
}

}  // namespace vitrine
