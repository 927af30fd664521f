#include "model/folder_config.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "model/head_rules.h"
#include "model/quote.h"
#include "model/status.h"

namespace vitrine {
namespace {

constexpr int kMaxLength = std::numeric_limits<int>::max();

constexpr HeadKeys kHeadKeys = {.d_model = "hidden_size",
                                .num_heads = "num_attention_heads",
                                .num_kv_heads = "num_key_value_heads",
                                .head_dim = "head_dim"};

absl::StatusOr<Activation> ReadActivation(JsonConfigReader& reader, std::string_view key,
                                          std::string_view fallback) {
  struct Name {
    std::string_view name;
    Activation activation;
  };
  constexpr Name kNames[] = {
      {"silu", Activation::kSilu},
      {"swish", Activation::kSilu},
      {"gelu", Activation::kGeluErf},
      {"gelu_python", Activation::kGeluErf},
      {"gelu_new", Activation::kGeluTanh},
      {"gelu_fast", Activation::kGeluTanh},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"relu", Activation::kRelu},
      {"relu2", Activation::kReluSquared},
  };
  VITRINE_ASSIGN_OR_RETURN(const std::string name, reader.String(key, std::string(fallback)));
  for (const Name& known : kNames) {
    if (known.name == name) return known.activation;
  }
  return reader.Unsupported(key, absl::StrCat("is ", Quote(name), ", which is not supported"));
}

}  // namespace

absl::Status ReadFolderConfig(JsonConfigReader& reader, const FolderDefaults& defaults,
                              FolderFamily& family) {
  ModelConfig& config = family.config;
  VITRINE_ASSIGN_OR_RETURN(config.num_layers, reader.Int("num_hidden_layers", 1, kMaxLayers));
  VITRINE_ASSIGN_OR_RETURN(config.d_model, reader.Int("hidden_size", 1, kMaxWidth));
  config.d_ff = 4 * config.d_model;
  if (!defaults.has_default_d_ff || reader.Has("intermediate_size")) {
    VITRINE_ASSIGN_OR_RETURN(config.d_ff, reader.Int("intermediate_size", 1, kMaxWidth));
  }
  VITRINE_ASSIGN_OR_RETURN(config.vocabulary, reader.Int("vocab_size", 1, kMaxVocabulary));
  config.context_length = defaults.context_length;
  if (defaults.context_length == 0 || reader.Has("max_position_embeddings")) {
    VITRINE_ASSIGN_OR_RETURN(config.context_length,
                             reader.Int("max_position_embeddings", 1, kMaxLength));
  }
  VITRINE_ASSIGN_OR_RETURN(const double epsilon,
                           reader.PositiveFloat(defaults.epsilon_key, defaults.epsilon));
  config.norm_epsilon = static_cast<float>(epsilon);
  VITRINE_RETURN_IF_ERROR(ReadHeads(reader, kHeadKeys, config));
  VITRINE_ASSIGN_OR_RETURN(config.activation,
                           ReadActivation(reader, defaults.activation_key, defaults.activation));
  VITRINE_ASSIGN_OR_RETURN(const bool is_tied,
                           reader.Bool("tie_word_embeddings", defaults.is_tied));
  family.names.output_head_rule = is_tied ? OutputHead::kTied : OutputHead::kOwn;
  return absl::OkStatus();
}

void UseGptNames(JsonConfigReader& reader) {
  reader.Alias("num_hidden_layers", "n_layer");
  reader.Alias("hidden_size", "n_embd");
  reader.Alias("intermediate_size", "n_inner");
  reader.Alias("num_attention_heads", "n_head");
  reader.Alias("max_position_embeddings", "n_positions");
}

absl::StatusOr<int> ReadWindowLength(JsonConfigReader& reader) {
  return reader.Int("sliding_window", 1, kMaxLength, 0);
}

absl::Status ReadWindowedLayers(JsonConfigReader& reader, int window,
                                const std::vector<bool>& is_windowed, ModelConfig& config) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<std::string> types, reader.Strings("layer_types"));
  const auto num_layers = static_cast<size_t>(config.num_layers);
  if (!types.empty() && types.size() != num_layers) {
    return reader.Error("layer_types",
                        absl::StrCat("has ", types.size(), " entries for ", num_layers, " layers"));
  }
  for (const std::string& type : types) {
    if (type == "full_attention" || type == "sliding_attention") continue;
    return reader.Unsupported("layer_types",
                              absl::StrCat("holds ", Quote(type), ", which is not supported"));
  }
  if (window == 0) return absl::OkStatus();
  config.layers.resize(num_layers);
  for (size_t i = 0; i < num_layers; ++i) {
    const bool has_window = types.empty() ? is_windowed[i] : types[i] == "sliding_attention";
    config.layers[i].window = has_window ? window : 0;
  }
  return absl::OkStatus();
}

void NameQkvBiases(TensorNames& names) {
  names.q_bias = "self_attn.q_proj.bias";
  names.k_bias = "self_attn.k_proj.bias";
  names.v_bias = "self_attn.v_proj.bias";
}

}  // namespace vitrine
