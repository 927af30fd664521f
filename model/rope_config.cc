#include "model/rope_config.h"

#include <limits>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "model/quote.h"
#include "model/rope_frequencies.h"
#include "model/status.h"

namespace vitrine {
namespace {

constexpr int kMaxLength = std::numeric_limits<int>::max();
constexpr double kDefaultBase = 10000.0;

// What may stand beside a rule: all that some rule reads, and what only informs.
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
absl::StatusOr<int> OriginalLength(const JsonConfigReader& reader, const ModelConfig& config) {
  return reader.Int("original_max_position_embeddings", 1, kMaxLength, config.context_length);
}

absl::Status ReadLlama3(const JsonConfigReader& scaling, double base, ModelConfig& config) {
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

absl::Status ReadYarn(const JsonConfigReader& scaling, double base, ModelConfig& config) {
  YarnScaling yarn;
  VITRINE_ASSIGN_OR_RETURN(yarn.original_length, OriginalLength(scaling, config));
  VITRINE_ASSIGN_OR_RETURN(yarn.factor, scaling.PositiveFloat("factor"));
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

// The rule by its name, which is "type" in old files.
absl::StatusOr<std::string> ReadRuleName(const JsonConfigReader& scaling) {
  VITRINE_ASSIGN_OR_RETURN(const std::string old_name, scaling.String("type", "default"));
  return scaling.String("rope_type", old_name);
}

absl::Status ReadScaling(const JsonConfigReader& scaling, double base, ModelConfig& config) {
  VITRINE_RETURN_IF_ERROR(scaling.CheckKnown(kScalingKeys));
  VITRINE_ASSIGN_OR_RETURN(const std::string rule, ReadRuleName(scaling));
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
absl::Status ReadRotaryDim(const JsonConfigReader& reader, double share, ModelConfig& config) {
  config.rotary_dim = static_cast<int>(config.head_dim * share);
  if (share > 1.0 || config.rotary_dim < 2 || config.rotary_dim % 2 != 0) {
    return reader.Error("partial_rotary_factor",
                        absl::StrCat("is ", share, ", which rotates ", config.rotary_dim, " of ",
                                     config.head_dim, " dimensions; expected an even number"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadRopeConfig(const JsonConfigReader& reader, ModelConfig& config) {
  VITRINE_ASSIGN_OR_RETURN(double base, reader.PositiveFloat("rope_theta", kDefaultBase));
  VITRINE_ASSIGN_OR_RETURN(double share, reader.PositiveFloat("partial_rotary_factor", 1.0));
  VITRINE_ASSIGN_OR_RETURN(std::optional<JsonConfigReader> scaling,
                           reader.Object("rope_parameters"));
  if (!scaling) {
    VITRINE_ASSIGN_OR_RETURN(scaling, reader.Object("rope_scaling"));
  }
  if (scaling) {
    VITRINE_ASSIGN_OR_RETURN(base, scaling->PositiveFloat("rope_theta", base));
    VITRINE_ASSIGN_OR_RETURN(share, scaling->PositiveFloat("partial_rotary_factor", share));
  }
  if (base < 1.0) return reader.Error("rope_theta", "is below 1");
  VITRINE_RETURN_IF_ERROR(ReadRotaryDim(reader, share, config));
  if (scaling) return ReadScaling(*scaling, base, config);
  config.rope_frequencies = RopeFrequencies(config.rotary_dim, base);
  return absl::OkStatus();
}

}  // namespace vitrine
