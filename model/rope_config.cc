#include "model/rope_config.h"

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/quote.h"
#include "model/rope_frequencies.h"
#include "model/status.h"

namespace vitrine {
namespace {

constexpr int kMaxLength = std::numeric_limits<int>::max();

// What may stand beside a rule: all that some rule reads, and what only informs. LongRoPE has more.
constexpr std::string_view kScalingKeys[] = {
    "rope_type",
    "type",
    "rope_theta",
    "partial_rotary_factor",
    "factor",
    "finetuned",
    "original_max_position_embeddings",
    "low_freq_factor",
    "high_freq_factor",
    "beta_fast",
    "beta_slow",
    "attention_factor",
    "mscale",
    "mscale_all_dim",
    "truncate",
};

// The length the model was trained for before scaling.
absl::StatusOr<int> OriginalLength(JsonConfigReader& scaling, const ModelConfig& config) {
  return scaling.Int("original_max_position_embeddings", 1, kMaxLength, config.context_length);
}

absl::Status ReadLlama3(JsonConfigReader& scaling, double base, ModelConfig& config) {
  Llama3Scaling llama3;
  VITRINE_ASSIGN_OR_RETURN(llama3.factor, scaling.PositiveFloat("factor"));
  VITRINE_ASSIGN_OR_RETURN(llama3.low_frequency_factor, scaling.PositiveFloat("low_freq_factor"));
  VITRINE_ASSIGN_OR_RETURN(llama3.high_frequency_factor, scaling.PositiveFloat("high_freq_factor"));
  VITRINE_ASSIGN_OR_RETURN(llama3.original_length,
                           scaling.Int("original_max_position_embeddings", 1, kMaxLength));
  if (llama3.low_frequency_factor >= llama3.high_frequency_factor) {
    return scaling.Error("low_freq_factor", "is not below high_freq_factor");
  }
  config.rope_frequencies = Llama3RopeFrequencies(config.rotary_dim, base, llama3);
  return absl::OkStatus();
}

absl::Status ReadYarn(JsonConfigReader& scaling, double base, ModelConfig& config) {
  YarnScaling yarn;
  VITRINE_ASSIGN_OR_RETURN(yarn.original_length, OriginalLength(scaling, config));
  if (scaling.IsNull("factor")) {
    yarn.factor = static_cast<double>(config.context_length) / yarn.original_length;
  } else {
    VITRINE_ASSIGN_OR_RETURN(yarn.factor, scaling.PositiveFloat("factor"));
  }
  VITRINE_ASSIGN_OR_RETURN(yarn.fast_turns, scaling.PositiveFloat("beta_fast", yarn.fast_turns));
  VITRINE_ASSIGN_OR_RETURN(yarn.slow_turns, scaling.PositiveFloat("beta_slow", yarn.slow_turns));
  VITRINE_ASSIGN_OR_RETURN(yarn.is_truncated, scaling.Bool("truncate", true));
  if (yarn.fast_turns < yarn.slow_turns) {
    return scaling.Error("beta_fast", "is below beta_slow");
  }
  if (base <= 1.0) return scaling.Unsupported("rope_theta", "is 1, where yarn has no meaning");
  config.rope_frequencies = YarnRopeFrequencies(config.rotary_dim, base, yarn);
  double attention_factor = YarnAttentionFactor(yarn.factor);
  if (scaling.Has("mscale") && scaling.Has("mscale_all_dim")) {
    VITRINE_ASSIGN_OR_RETURN(const double scale, scaling.PositiveFloat("mscale"));
    VITRINE_ASSIGN_OR_RETURN(const double scale_all, scaling.PositiveFloat("mscale_all_dim"));
    attention_factor =
        YarnAttentionFactor(yarn.factor, scale) / YarnAttentionFactor(yarn.factor, scale_all);
  }
  VITRINE_ASSIGN_OR_RETURN(attention_factor,
                           scaling.PositiveFloat("attention_factor", attention_factor));
  config.rope_attention_factor = static_cast<float>(attention_factor);
  return absl::OkStatus();
}

// LongRoPE (Ding et al., 2024): every frequency has a factor of its own, in two sets, of which the
// longer context takes the other.
absl::Status ReadLongRope(JsonConfigReader& reader, JsonConfigReader& scaling, double base,
                          ModelConfig& config) {
  VITRINE_ASSIGN_OR_RETURN(const int inner_length, OriginalLength(scaling, config));
  VITRINE_ASSIGN_OR_RETURN(const int original_length, reader.Int("original_max_position_embeddings",
                                                                 1, kMaxLength, inner_length));
  VITRINE_ASSIGN_OR_RETURN(
      const double factor,
      scaling.PositiveFloat("factor",
                            static_cast<double>(config.context_length) / original_length));
  VITRINE_ASSIGN_OR_RETURN(
      const double attention_factor,
      scaling.PositiveFloat("attention_factor", LongRopeAttentionFactor(factor, original_length)));
  config.rope_attention_factor = static_cast<float>(attention_factor);
  const std::vector<double> frequencies = RopeFrequencies(config.rotary_dim, base);
  const auto divided_by = [&](std::string_view key) -> absl::StatusOr<std::vector<double>> {
    VITRINE_ASSIGN_OR_RETURN(std::vector<double> factors, scaling.PositiveFloats(key));
    if (factors.size() != frequencies.size()) {
      return scaling.Error(key, absl::StrCat("has ", factors.size(), " entries for ",
                                             frequencies.size(), " frequencies"));
    }
    for (size_t i = 0; i < factors.size(); ++i) factors[i] = frequencies[i] / factors[i];
    return factors;
  };
  VITRINE_ASSIGN_OR_RETURN(config.rope_frequencies, divided_by("short_factor"));
  VITRINE_ASSIGN_OR_RETURN(config.long_rope_frequencies, divided_by("long_factor"));
  config.short_context_length = original_length;
  return absl::OkStatus();
}

// The rule by its name, which is "type" in old files.
absl::StatusOr<std::string> ReadRuleName(JsonConfigReader& scaling) {
  VITRINE_ASSIGN_OR_RETURN(const std::string old_name, scaling.String("type", "default"));
  return scaling.String("rope_type", old_name);
}

absl::Status ReadScaling(JsonConfigReader& reader, JsonConfigReader& scaling, double base,
                         ModelConfig& config) {
  VITRINE_ASSIGN_OR_RETURN(const std::string rule, ReadRuleName(scaling));
  // Phi 3's first files call LongRoPE "su", and some "yarn" (they hold its factors).
  if (rule == "longrope" || rule == "su" || (rule == "yarn" && scaling.Has("short_factor"))) {
    return ReadLongRope(reader, scaling, base, config);
  }
  VITRINE_RETURN_IF_ERROR(scaling.CheckKnown(kScalingKeys));
  if (rule == "default") {
    config.rope_frequencies = RopeFrequencies(config.rotary_dim, base);
    return absl::OkStatus();
  }
  if (rule == "linear") {
    VITRINE_ASSIGN_OR_RETURN(const double factor, scaling.PositiveFloat("factor"));
    config.rope_frequencies = LinearRopeFrequencies(config.rotary_dim, base, factor);
    return absl::OkStatus();
  }
  if (rule == "dynamic") {
    // Up to the length of training the rule changes nothing, and longer contexts are not served:
    // keys in the cache would have to turn again with every token.
    VITRINE_RETURN_IF_ERROR(scaling.PositiveFloat("factor").status());
    config.rope_frequencies = RopeFrequencies(config.rotary_dim, base);
    return absl::OkStatus();
  }
  if (rule == "llama3") return ReadLlama3(scaling, base, config);
  if (rule == "yarn") return ReadYarn(scaling, base, config);
  return scaling.Unsupported("rope_type",
                             absl::StrCat("is ", Quote(rule), ", which is not supported"));
}

// rotary_dim of heads that rotate in part, as transformers rounds it.
absl::Status ReadRotaryDim(JsonConfigReader& reader, double share, ModelConfig& config) {
  config.rotary_dim = static_cast<int>(config.head_dim * share);
  if (share > 1.0 || config.rotary_dim < 2 || config.rotary_dim % 2 != 0) {
    return reader.Error("partial_rotary_factor",
                        absl::StrCat("is ", share, ", which rotates ", config.rotary_dim, " of ",
                                     config.head_dim, " dimensions; expected an even number"));
  }
  return absl::OkStatus();
}

// Where the rules of one set of frequencies stand: in an object of their own, or beside all else.
absl::Status ReadRules(JsonConfigReader& reader, std::optional<JsonConfigReader>& scaling,
                       const RopeDefaults& defaults, ModelConfig& config) {
  VITRINE_ASSIGN_OR_RETURN(double base, reader.PositiveFloat("rope_theta", defaults.base));
  VITRINE_ASSIGN_OR_RETURN(
      double share,
      reader.PositiveFloat("partial_rotary_factor", defaults.partial_rotary_factor.value_or(1.0)));
  if (scaling) {
    VITRINE_ASSIGN_OR_RETURN(base, scaling->PositiveFloat("rope_theta", base));
    VITRINE_ASSIGN_OR_RETURN(share, scaling->PositiveFloat("partial_rotary_factor", share));
  }
  if (base < 1.0) return reader.Error("rope_theta", "is below 1");
  if (share != 1.0 && !defaults.partial_rotary_factor) {
    return reader.Unsupported("partial_rotary_factor", "is not supported in this family");
  }
  VITRINE_RETURN_IF_ERROR(ReadRotaryDim(reader, share, config));
  if (scaling) return ReadScaling(reader, *scaling, base, config);
  config.rope_frequencies = RopeFrequencies(config.rotary_dim, base);
  return absl::OkStatus();
}

// The old spelling wins where a file has both, as in transformers.
absl::StatusOr<std::optional<JsonConfigReader>> FindScaling(JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(std::optional<JsonConfigReader> scaling, reader.Object("rope_scaling"));
  if (scaling) {
    reader.Ignore("rope_parameters");
    return scaling;
  }
  return reader.Object("rope_parameters");
}

}  // namespace

absl::Status ReadRopeConfig(JsonConfigReader& reader, const RopeDefaults& defaults,
                            ModelConfig& config) {
  config.rope_pairing = RopePairing::kHalfSplit;
  VITRINE_ASSIGN_OR_RETURN(std::optional<JsonConfigReader> scaling, FindScaling(reader));
  return ReadRules(reader, scaling, defaults, config);
}

absl::Status ReadLayeredRopeConfig(JsonConfigReader& reader, ModelConfig& config) {
  constexpr RopeDefaults kGlobal = {.base = 1e6};
  constexpr RopeDefaults kLocal = {.base = 1e4};
  config.rope_pairing = RopePairing::kHalfSplit;
  VITRINE_ASSIGN_OR_RETURN(std::optional<JsonConfigReader> parameters,
                           reader.Object("rope_parameters"));
  std::optional<JsonConfigReader> global;
  std::optional<JsonConfigReader> local;
  if (parameters) {
    VITRINE_RETURN_IF_ERROR(parameters->CheckKnown({{"full_attention", "sliding_attention"}}));
    VITRINE_ASSIGN_OR_RETURN(global, parameters->Object("full_attention"));
    VITRINE_ASSIGN_OR_RETURN(local, parameters->Object("sliding_attention"));
  } else {
    VITRINE_ASSIGN_OR_RETURN(global, reader.Object("rope_scaling"));
  }

  VITRINE_ASSIGN_OR_RETURN(const double local_base,
                           reader.PositiveFloat("rope_local_base_freq", kLocal.base));
  ModelConfig windowed = config;
  if (local) {
    VITRINE_RETURN_IF_ERROR(ReadRules(*local, local, {.base = local_base}, windowed));
  } else {
    VITRINE_RETURN_IF_ERROR(ReadRotaryDim(reader, 1.0, windowed));
    windowed.rope_frequencies = RopeFrequencies(windowed.rotary_dim, local_base);
  }
  if (windowed.rope_attention_factor != 1.0f || windowed.short_context_length != 0) {
    return reader.Unsupported("rope_parameters", "scales the windowed layers' rope: not supported");
  }
  VITRINE_RETURN_IF_ERROR(ReadRules(reader, global, kGlobal, config));
  if (windowed.rotary_dim != config.rotary_dim) {
    return reader.Unsupported("rope_parameters", "rotates parts of heads that differ by layer");
  }
  config.local_rope_frequencies = windowed.rope_frequencies;
  for (LayerConfig& layer : config.layers) layer.local_rope = layer.window > 0;
  return absl::OkStatus();
}

}  // namespace vitrine
