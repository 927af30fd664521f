#include "model/llama_folder_families.h"

#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/rope_config.h"
#include "model/status.h"

namespace vitrine {
namespace {

constexpr TensorNames kLlamaNames = {
    .base_prefix = "model.",
    .embedding = "embed_tokens.weight",
    .final_norm = "norm.weight",
    .output_head = "lm_head.weight",
    .layer_prefix = "layers.",
    .attention_norm = "input_layernorm.weight",
    .q = "self_attn.q_proj.weight",
    .k = "self_attn.k_proj.weight",
    .v = "self_attn.v_proj.weight",
    .attention_out = "self_attn.o_proj.weight",
    .mlp_norm = "post_attention_layernorm.weight",
    .gate = "mlp.gate_proj.weight",
    .up = "mlp.up_proj.weight",
    .down = "mlp.down_proj.weight",
    .ignored_suffixes = {".rotary_emb.inv_freq"},
};

// All that llama and its relatives share.
absl::StatusOr<FolderFamily> ReadLlamaLike(JsonConfigReader& reader, const FolderDefaults& defaults,
                                           const RopeDefaults& rope = {}) {
  FolderFamily family;
  family.names = kLlamaNames;
  VITRINE_RETURN_IF_ERROR(ReadFolderConfig(reader, defaults, family));
  VITRINE_RETURN_IF_ERROR(ReadRopeConfig(reader, rope, family.config));
  return family;
}

// attention_bias gives all four projections of attention a bias.
absl::Status ReadAttentionBias(JsonConfigReader& reader, TensorNames& names) {
  VITRINE_ASSIGN_OR_RETURN(const bool has_bias, reader.Bool("attention_bias", false));
  if (!has_bias) return absl::OkStatus();
  NameQkvBiases(names);
  names.attention_out_bias = "self_attn.o_proj.bias";
  return absl::OkStatus();
}

absl::Status ReadMlpBias(JsonConfigReader& reader, TensorNames& names) {
  VITRINE_ASSIGN_OR_RETURN(const bool has_bias, reader.Bool("mlp_bias", false));
  if (!has_bias) return absl::OkStatus();
  names.gate_bias = "mlp.gate_proj.bias";
  names.up_bias = "mlp.up_proj.bias";
  names.down_bias = "mlp.down_proj.bias";
  return absl::OkStatus();
}

// Norms with a mean, and a bias beside each weight.
void UseLayerNorm(FolderFamily& family) {
  family.config.norm_kind = NormKind::kLayer;
  family.names.attention_norm_bias = "input_layernorm.bias";
  family.names.mlp_norm_bias = "post_attention_layernorm.bias";
  family.names.final_norm_bias = "norm.bias";
}

void NameQkNorms(TensorNames& names) {
  names.q_norm = "self_attn.q_norm.weight";
  names.k_norm = "self_attn.k_norm.weight";
}

// Every layer has the window of sliding_window, where there is one.
absl::Status ReadUniformWindow(JsonConfigReader& reader, ModelConfig& config) {
  VITRINE_ASSIGN_OR_RETURN(const int window, ReadWindowLength(reader));
  const std::vector<bool> all(static_cast<size_t>(config.num_layers), true);
  return ReadWindowedLayers(reader, window, all, config);
}

// Qwen 2 and 3 name the windowed layers one by one in new files, and by the first of them in old.
absl::Status ReadQwenWindow(JsonConfigReader& reader, ModelConfig& config) {
  VITRINE_ASSIGN_OR_RETURN(const bool has_window, reader.Bool("use_sliding_window", false));
  VITRINE_ASSIGN_OR_RETURN(const int first_layer,
                           reader.Int("max_window_layers", 0, kMaxLayers, 28));
  reader.Ignore("sliding_window");  // Files have one without using it.
  int window = 0;
  if (has_window) {
    VITRINE_ASSIGN_OR_RETURN(window, ReadWindowLength(reader));
  }
  std::vector<bool> is_windowed(static_cast<size_t>(config.num_layers));
  for (size_t i = 0; i < is_windowed.size(); ++i) {
    is_windowed[i] = static_cast<int>(i) >= first_layer;
  }
  return ReadWindowedLayers(reader, window, is_windowed, config);
}

// Every `period`-th layer sees all keys, the others a window.
absl::Status ReadPeriodicWindow(JsonConfigReader& reader, int period, ModelConfig& config) {
  VITRINE_ASSIGN_OR_RETURN(const int window, ReadWindowLength(reader));
  std::vector<bool> is_windowed(static_cast<size_t>(config.num_layers));
  for (size_t i = 0; i < is_windowed.size(); ++i) {
    is_windowed[i] = (static_cast<int>(i) + 1) % period != 0;
  }
  return ReadWindowedLayers(reader, window, is_windowed, config);
}

// How many experts there are and how they are called. `d_ff_key`: the width of one.
absl::Status ReadExperts(JsonConfigReader& reader, std::string_view d_ff_key,
                         FolderFamily& family) {
  reader.Alias("num_experts", "num_local_experts");
  ExpertConfig& experts = family.config.experts;
  VITRINE_ASSIGN_OR_RETURN(experts.count, reader.Int("num_experts", 1, kMaxExperts));
  VITRINE_ASSIGN_OR_RETURN(experts.per_token, reader.Int("num_experts_per_tok", 1, experts.count));
  VITRINE_ASSIGN_OR_RETURN(experts.d_ff, reader.Int(d_ff_key, 1, kMaxWidth));
  VITRINE_ASSIGN_OR_RETURN(experts.normalizes_weights, reader.Bool("norm_topk_prob", false));
  TensorNames& names = family.names;
  names.router = "mlp.gate.weight";
  names.expert_prefix = "mlp.experts.";
  names.expert_gate = ".gate_proj.weight";
  names.expert_up = ".up_proj.weight";
  names.expert_down = ".down_proj.weight";
  return absl::OkStatus();
}

// Qwen's mixtures leave some layers as they were.
absl::Status ReadDenseLayers(JsonConfigReader& reader, ModelConfig& config) {
  VITRINE_ASSIGN_OR_RETURN(const int step, reader.Int("decoder_sparse_step", 1, kMaxLayers, 1));
  VITRINE_ASSIGN_OR_RETURN(const std::vector<int> dense,
                           reader.Ids("mlp_only_layers", config.num_layers - 1));
  config.layers.resize(static_cast<size_t>(config.num_layers));
  for (int i = 0; i < config.num_layers; ++i) {
    config.layers[static_cast<size_t>(i)].is_dense = (i + 1) % step != 0;
  }
  for (const int layer : dense) config.layers[static_cast<size_t>(layer)].is_dense = true;
  return absl::OkStatus();
}

constexpr FolderDefaults kGemmaDefaults = {.activation = "gelu_pytorch_tanh", .is_tied = true};
constexpr FolderDefaults kGemma2Defaults = {
    .activation_key = "hidden_activation", .activation = "gelu_pytorch_tanh", .is_tied = true};

// Norms weigh by 1 + w, and embeddings grow by the root of their width.
void UseGemmaScales(ModelConfig& config) {
  config.norm_weight_offset = 1.0f;
  config.embedding_scale = std::sqrt(static_cast<float>(config.d_model));
}

// What Gemma 2 brought: norms on both sides of a block, a scale of its own, soft caps.
absl::Status ReadGemma2Parts(JsonConfigReader& reader, double default_logit_cap,
                             double default_attention_cap, FolderFamily& family) {
  ModelConfig& config = family.config;
  config.norm_placement = NormPlacement::kInputAndOutput;
  TensorNames& names = family.names;
  names.attention_post_norm = "post_attention_layernorm.weight";
  names.mlp_norm = "pre_feedforward_layernorm.weight";
  names.mlp_post_norm = "post_feedforward_layernorm.weight";
  VITRINE_ASSIGN_OR_RETURN(const double scalar, reader.PositiveFloat("query_pre_attn_scalar", 256));
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(scalar));
  // A null turns a cap off that an absent member leaves on.
  const auto read_cap = [&](std::string_view key, double fallback) {
    return reader.PositiveFloat(key, reader.IsNull(key) ? 0.0 : fallback);
  };
  VITRINE_ASSIGN_OR_RETURN(const double logit_cap,
                           read_cap("final_logit_softcapping", default_logit_cap));
  VITRINE_ASSIGN_OR_RETURN(const double attention_cap,
                           read_cap("attn_logit_softcapping", default_attention_cap));
  config.logit_softcap = static_cast<float>(logit_cap);
  config.attention_softcap = static_cast<float>(attention_cap);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FolderFamily> ReadLlama(JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family, ReadLlamaLike(reader, {}));
  VITRINE_RETURN_IF_ERROR(ReadAttentionBias(reader, family.names));
  VITRINE_RETURN_IF_ERROR(ReadMlpBias(reader, family.names));
  return family;
}

absl::StatusOr<FolderFamily> ReadMistral(JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family, ReadLlamaLike(reader, {}));
  VITRINE_RETURN_IF_ERROR(ReadUniformWindow(reader, family.config));
  return family;
}

absl::StatusOr<FolderFamily> ReadMixtral(JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family, ReadMistral(reader));
  VITRINE_RETURN_IF_ERROR(ReadExperts(reader, "intermediate_size", family));
  family.config.experts.normalizes_weights = true;
  TensorNames& names = family.names;
  names.router = "block_sparse_moe.gate.weight";
  names.expert_prefix = "block_sparse_moe.experts.";
  names.expert_gate = ".w1.weight";
  names.expert_up = ".w3.weight";
  names.expert_down = ".w2.weight";
  return family;
}

absl::StatusOr<FolderFamily> ReadQwen2(JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family, ReadLlamaLike(reader, {}));
  NameQkvBiases(family.names);
  VITRINE_RETURN_IF_ERROR(ReadQwenWindow(reader, family.config));
  return family;
}

absl::StatusOr<FolderFamily> ReadQwen3(JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family, ReadLlamaLike(reader, {}));
  VITRINE_RETURN_IF_ERROR(ReadAttentionBias(reader, family.names));
  VITRINE_RETURN_IF_ERROR(ReadQwenWindow(reader, family.config));
  family.config.qk_norm = QkNorm::kPerHead;
  NameQkNorms(family.names);
  return family;
}

absl::StatusOr<FolderFamily> ReadQwen2Moe(JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family, ReadLlamaLike(reader, {}));
  VITRINE_ASSIGN_OR_RETURN(const bool has_bias, reader.Bool("qkv_bias", true));
  if (has_bias) NameQkvBiases(family.names);
  VITRINE_RETURN_IF_ERROR(ReadQwenWindow(reader, family.config));
  VITRINE_RETURN_IF_ERROR(ReadExperts(reader, "moe_intermediate_size", family));
  VITRINE_RETURN_IF_ERROR(ReadDenseLayers(reader, family.config));
  VITRINE_ASSIGN_OR_RETURN(family.config.experts.d_shared,
                           reader.Int("shared_expert_intermediate_size", 1, kMaxWidth));
  TensorNames& names = family.names;
  names.shared_router = "mlp.shared_expert_gate.weight";
  names.shared_gate = "mlp.shared_expert.gate_proj.weight";
  names.shared_up = "mlp.shared_expert.up_proj.weight";
  names.shared_down = "mlp.shared_expert.down_proj.weight";
  return family;
}

absl::StatusOr<FolderFamily> ReadQwen3Moe(JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family, ReadLlamaLike(reader, {}));
  VITRINE_RETURN_IF_ERROR(ReadAttentionBias(reader, family.names));
  family.config.qk_norm = QkNorm::kPerHead;
  NameQkNorms(family.names);
  VITRINE_ASSIGN_OR_RETURN(const bool has_window, reader.Bool("use_sliding_window", false));
  if (has_window) VITRINE_RETURN_IF_ERROR(ReadUniformWindow(reader, family.config));
  reader.Ignore("sliding_window");
  VITRINE_RETURN_IF_ERROR(ReadExperts(reader, "moe_intermediate_size", family));
  VITRINE_RETURN_IF_ERROR(ReadDenseLayers(reader, family.config));
  return family;
}

absl::StatusOr<FolderFamily> ReadPhi(JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(
      FolderFamily family,
      ReadLlamaLike(reader,
                    {.epsilon_key = "layer_norm_eps", .epsilon = 1e-5, .activation = "gelu_new"},
                    {.partial_rotary_factor = 0.5}));
  family.config.norm_kind = NormKind::kLayer;
  family.config.is_parallel = true;
  TensorNames& names = family.names;
  NameQkvBiases(names);
  names.attention_norm_bias = "input_layernorm.bias";
  names.attention_out = "self_attn.dense.weight";
  names.attention_out_bias = "self_attn.dense.bias";
  names.mlp_norm = names.gate = {};
  names.up = "mlp.fc1.weight";
  names.up_bias = "mlp.fc1.bias";
  names.down = "mlp.fc2.weight";
  names.down_bias = "mlp.fc2.bias";
  names.final_norm = "final_layernorm.weight";
  names.final_norm_bias = "final_layernorm.bias";
  names.output_bias = "lm_head.bias";
  VITRINE_ASSIGN_OR_RETURN(const bool has_qk_norm, reader.Bool("qk_layernorm", false));
  if (has_qk_norm) {
    family.config.qk_norm = QkNorm::kLayer;
    names.q_norm = "self_attn.q_layernorm.weight";
    names.k_norm = "self_attn.k_layernorm.weight";
    names.q_norm_bias = "self_attn.q_layernorm.bias";
    names.k_norm_bias = "self_attn.k_layernorm.bias";
  }
  return family;
}

absl::StatusOr<FolderFamily> ReadPhi3(JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family, ReadLlamaLike(reader, {.epsilon = 1e-5},
                                                              {.partial_rotary_factor = 1.0}));
  VITRINE_RETURN_IF_ERROR(ReadUniformWindow(reader, family.config));
  TensorNames& names = family.names;
  names.q = names.k = names.v = names.gate = names.up = {};
  names.qkv = "self_attn.qkv_proj.weight";
  names.gate_up = "mlp.gate_up_proj.weight";
  return family;
}

absl::StatusOr<FolderFamily> ReadOlmo(JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family, ReadLlamaLike(reader, {.epsilon = 1e-5}));
  VITRINE_RETURN_IF_ERROR(ReadAttentionBias(reader, family.names));
  family.config.norm_kind = NormKind::kLayer;
  family.config.norm_epsilon = 1e-5f;  // OlmoLayerNorm's own.
  family.config.norm_has_weight = false;
  VITRINE_ASSIGN_OR_RETURN(const double clip, reader.PositiveFloat("clip_qkv", 0.0));
  family.config.qkv_clip = static_cast<float>(clip);
  family.names.attention_norm = family.names.mlp_norm = family.names.final_norm = {};
  return family;
}

absl::StatusOr<FolderFamily> ReadOlmo2(JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family, ReadLlamaLike(reader, {.epsilon = 1e-5}));
  VITRINE_RETURN_IF_ERROR(ReadAttentionBias(reader, family.names));
  family.config.norm_placement = NormPlacement::kOutput;
  family.config.qk_norm = QkNorm::kAllHeads;
  TensorNames& names = family.names;
  names.attention_norm = names.mlp_norm = {};
  names.attention_post_norm = "post_attention_layernorm.weight";
  names.mlp_post_norm = "post_feedforward_layernorm.weight";
  NameQkNorms(names);
  return family;
}

absl::StatusOr<FolderFamily> ReadOlmoE(JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family, ReadLlamaLike(reader, {.epsilon = 1e-5}));
  VITRINE_RETURN_IF_ERROR(ReadAttentionBias(reader, family.names));
  family.config.qk_norm = QkNorm::kAllHeads;
  NameQkNorms(family.names);
  VITRINE_RETURN_IF_ERROR(ReadExperts(reader, "intermediate_size", family));
  return family;
}

absl::StatusOr<FolderFamily> ReadGranite(JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family, ReadLlama(reader));
  ModelConfig& config = family.config;
  VITRINE_ASSIGN_OR_RETURN(const double embedding,
                           reader.PositiveFloat("embedding_multiplier", 1.0));
  VITRINE_ASSIGN_OR_RETURN(const double residual, reader.PositiveFloat("residual_multiplier", 1.0));
  VITRINE_ASSIGN_OR_RETURN(const double attention,
                           reader.PositiveFloat("attention_multiplier", 1.0));
  VITRINE_ASSIGN_OR_RETURN(const double logits, reader.PositiveFloat("logits_scaling", 1.0));
  config.embedding_scale = static_cast<float>(embedding);
  config.residual_scale = static_cast<float>(residual);
  config.attention_scale = static_cast<float>(attention);
  config.logit_scale = static_cast<float>(1.0 / logits);
  return family;
}

absl::StatusOr<FolderFamily> ReadSmolLm3(JsonConfigReader& reader) {
  FolderFamily family;
  family.names = kLlamaNames;
  ModelConfig& config = family.config;
  VITRINE_RETURN_IF_ERROR(ReadFolderConfig(reader, {.is_tied = true}, family));
  VITRINE_RETURN_IF_ERROR(ReadRopeConfig(reader, {.base = 2e6}, config));
  VITRINE_RETURN_IF_ERROR(ReadAttentionBias(reader, family.names));
  VITRINE_RETURN_IF_ERROR(ReadMlpBias(reader, family.names));

  // no_rope_layers says 1 where a layer does rotate.
  const auto num_layers = static_cast<size_t>(config.num_layers);
  VITRINE_ASSIGN_OR_RETURN(std::vector<int> rotates, reader.Ids("no_rope_layers", 1));
  VITRINE_ASSIGN_OR_RETURN(const int interval, reader.Int("no_rope_layer_interval", 1,
                                                          std::numeric_limits<int>::max(), 4));
  if (!rotates.empty() && rotates.size() != num_layers) {
    return reader.Error("no_rope_layers", absl::StrCat("has ", rotates.size(), " entries for ",
                                                       num_layers, " layers"));
  }
  for (size_t i = rotates.size(); i < num_layers; ++i) {
    rotates.push_back((static_cast<int>(i) + 1) % interval != 0 ? 1 : 0);
  }
  VITRINE_ASSIGN_OR_RETURN(const bool has_window, reader.Bool("use_sliding_window", false));
  reader.Ignore("sliding_window");
  int window = 0;
  if (has_window) {
    VITRINE_ASSIGN_OR_RETURN(window, ReadWindowLength(reader));
  }
  std::vector<bool> is_windowed(num_layers);
  for (size_t i = 0; i < num_layers; ++i) is_windowed[i] = rotates[i] == 0;
  VITRINE_RETURN_IF_ERROR(ReadWindowedLayers(reader, window, is_windowed, config));
  config.layers.resize(num_layers);
  for (size_t i = 0; i < num_layers; ++i) config.layers[i].rotates = rotates[i] != 0;
  return family;
}

absl::StatusOr<FolderFamily> ReadStableLm(JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family,
                           ReadLlamaLike(reader, {.epsilon_key = "layer_norm_eps", .epsilon = 1e-5},
                                         {.partial_rotary_factor = 0.25}));
  UseLayerNorm(family);
  VITRINE_ASSIGN_OR_RETURN(const bool has_bias, reader.Bool("use_qkv_bias", false));
  if (has_bias) NameQkvBiases(family.names);
  VITRINE_ASSIGN_OR_RETURN(family.config.is_parallel, reader.Bool("use_parallel_residual", false));
  if (family.config.is_parallel) family.names.mlp_norm = family.names.mlp_norm_bias = {};
  VITRINE_ASSIGN_OR_RETURN(const bool has_qk_norm, reader.Bool("qk_layernorm", false));
  if (has_qk_norm) {
    family.config.qk_norm = QkNorm::kOwnLayer;
    family.names.q_norm = "self_attn.q_layernorm.norms.";
    family.names.k_norm = "self_attn.k_layernorm.norms.";
    family.names.head_suffix = ".weight";
  }
  return family;
}

absl::StatusOr<FolderFamily> ReadStarcoder2(JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family,
                           ReadLlamaLike(reader, {.epsilon_key = "norm_epsilon",
                                                  .epsilon = 1e-5,
                                                  .activation = "gelu_pytorch_tanh",
                                                  .is_tied = true}));
  VITRINE_RETURN_IF_ERROR(ReadUniformWindow(reader, family.config));
  UseLayerNorm(family);
  TensorNames& names = family.names;
  names.gate = {};
  names.up = "mlp.c_fc.weight";
  names.down = "mlp.c_proj.weight";
  VITRINE_ASSIGN_OR_RETURN(const bool has_bias, reader.Bool("use_bias", true));
  if (has_bias) {
    NameQkvBiases(names);
    names.attention_out_bias = "self_attn.o_proj.bias";
    names.up_bias = "mlp.c_fc.bias";
    names.down_bias = "mlp.c_proj.bias";
  }
  return family;
}

absl::StatusOr<FolderFamily> ReadGemma(JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family, ReadLlamaLike(reader, kGemmaDefaults));
  VITRINE_RETURN_IF_ERROR(ReadAttentionBias(reader, family.names));
  UseGemmaScales(family.config);
  return family;
}

absl::StatusOr<FolderFamily> ReadGemma2(JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family, ReadLlamaLike(reader, kGemma2Defaults));
  VITRINE_RETURN_IF_ERROR(ReadAttentionBias(reader, family.names));
  UseGemmaScales(family.config);
  VITRINE_RETURN_IF_ERROR(ReadGemma2Parts(reader, 30.0, 50.0, family));
  VITRINE_RETURN_IF_ERROR(ReadPeriodicWindow(reader, 2, family.config));
  return family;
}

absl::StatusOr<FolderFamily> ReadGemma3(JsonConfigReader& reader) {
  FolderFamily family;
  family.names = kLlamaNames;
  VITRINE_RETURN_IF_ERROR(ReadFolderConfig(reader, kGemma2Defaults, family));
  VITRINE_RETURN_IF_ERROR(ReadAttentionBias(reader, family.names));
  UseGemmaScales(family.config);
  VITRINE_RETURN_IF_ERROR(ReadGemma2Parts(reader, 0.0, 0.0, family));
  family.config.attention_softcap = 0.0f;  // Gemma 3 may name a cap, and transformers has none.
  VITRINE_ASSIGN_OR_RETURN(const int period,
                           reader.Int("sliding_window_pattern", 1, kMaxLayers, 6));
  VITRINE_RETURN_IF_ERROR(ReadPeriodicWindow(reader, period, family.config));
  VITRINE_RETURN_IF_ERROR(ReadLayeredRopeConfig(reader, family.config));
  family.config.qk_norm = QkNorm::kPerHead;
  NameQkNorms(family.names);
  return family;
}

}  // namespace vitrine
