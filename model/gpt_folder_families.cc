#include "model/gpt_folder_families.h"

#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/quote.h"
#include "model/rope_config.h"
#include "model/rope_frequencies.h"
#include "model/status.h"

namespace vitrine {
namespace {

constexpr TensorNames kGpt2Names = {
    .base_prefix = "transformer.",
    .embedding = "wte.weight",
    .position_table = "wpe.weight",
    .final_norm = "ln_f.weight",
    .final_norm_bias = "ln_f.bias",
    .output_head = "lm_head.weight",
    .layer_prefix = "h.",
    .attention_norm = "ln_1.weight",
    .attention_norm_bias = "ln_1.bias",
    .qkv = "attn.c_attn.weight",
    .qkv_bias = "attn.c_attn.bias",
    .attention_out = "attn.c_proj.weight",
    .attention_out_bias = "attn.c_proj.bias",
    .mlp_norm = "ln_2.weight",
    .mlp_norm_bias = "ln_2.bias",
    .up = "mlp.c_fc.weight",
    .up_bias = "mlp.c_fc.bias",
    .down = "mlp.c_proj.weight",
    .down_bias = "mlp.c_proj.bias",
    .ignored_suffixes = {".attn.bias", ".attn.masked_bias"},
};

constexpr TensorNames kGptNeoXNames = {
    .base_prefix = "gpt_neox.",
    .embedding = "embed_in.weight",
    .final_norm = "final_layer_norm.weight",
    .final_norm_bias = "final_layer_norm.bias",
    .output_head = "embed_out.weight",
    .layer_prefix = "layers.",
    .attention_norm = "input_layernorm.weight",
    .attention_norm_bias = "input_layernorm.bias",
    .qkv = "attention.query_key_value.weight",
    .qkv_order = QkvOrder::kGrouped,
    .attention_out = "attention.dense.weight",
    .mlp_norm = "post_attention_layernorm.weight",
    .mlp_norm_bias = "post_attention_layernorm.bias",
    .up = "mlp.dense_h_to_4h.weight",
    .up_bias = "mlp.dense_h_to_4h.bias",
    .down = "mlp.dense_4h_to_h.weight",
    .down_bias = "mlp.dense_4h_to_h.bias",
    .ignored_suffixes = {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"},
};

constexpr TensorNames kGptJNames = {
    .base_prefix = "transformer.",
    .embedding = "wte.weight",
    .final_norm = "ln_f.weight",
    .final_norm_bias = "ln_f.bias",
    .output_head = "lm_head.weight",
    .output_bias = "lm_head.bias",
    .layer_prefix = "h.",
    .attention_norm = "ln_1.weight",
    .attention_norm_bias = "ln_1.bias",
    .q = "attn.q_proj.weight",
    .k = "attn.k_proj.weight",
    .v = "attn.v_proj.weight",
    .attention_out = "attn.out_proj.weight",
    .up = "mlp.fc_in.weight",
    .up_bias = "mlp.fc_in.bias",
    .down = "mlp.fc_out.weight",
    .down_bias = "mlp.fc_out.bias",
    .ignored_suffixes = {".attn.bias", ".attn.masked_bias", ".attn.embed_positions"},
};

// Falcon and Bloom.
constexpr TensorNames kBloomNames = {
    .base_prefix = "transformer.",
    .embedding = "word_embeddings.weight",
    .final_norm = "ln_f.weight",
    .final_norm_bias = "ln_f.bias",
    .output_head = "lm_head.weight",
    .layer_prefix = "h.",
    .attention_norm = "input_layernorm.weight",
    .attention_norm_bias = "input_layernorm.bias",
    .qkv = "self_attention.query_key_value.weight",
    .qkv_order = QkvOrder::kGrouped,
    .attention_out = "self_attention.dense.weight",
    .mlp_norm = "post_attention_layernorm.weight",
    .mlp_norm_bias = "post_attention_layernorm.bias",
    .up = "mlp.dense_h_to_4h.weight",
    .down = "mlp.dense_4h_to_h.weight",
    .ignored_suffixes = {".rotary_emb.inv_freq", ".maybe_rotary.inv_freq"},
};

constexpr TensorNames kMptNames = {
    .base_prefix = "transformer.",
    .embedding = "wte.weight",
    .final_norm = "norm_f.weight",
    .output_head = "lm_head.weight",
    .layer_prefix = "blocks.",
    .attention_norm = "norm_1.weight",
    .qkv = "attn.Wqkv.weight",
    .attention_out = "attn.out_proj.weight",
    .mlp_norm = "norm_2.weight",
    .up = "ffn.up_proj.weight",
    .down = "ffn.down_proj.weight",
};

constexpr TensorNames kOptNames = {
    .base_prefix = "model.",
    .embedding = "decoder.embed_tokens.weight",
    .position_table = "decoder.embed_positions.weight",
    .unused_positions = 2,
    .final_norm = "decoder.final_layer_norm.weight",
    .final_norm_bias = "decoder.final_layer_norm.bias",
    .output_head = "lm_head.weight",
    .layer_prefix = "decoder.layers.",
    .attention_norm = "self_attn_layer_norm.weight",
    .attention_norm_bias = "self_attn_layer_norm.bias",
    .q = "self_attn.q_proj.weight",
    .k = "self_attn.k_proj.weight",
    .v = "self_attn.v_proj.weight",
    .attention_out = "self_attn.out_proj.weight",
    .mlp_norm = "final_layer_norm.weight",
    .mlp_norm_bias = "final_layer_norm.bias",
    .up = "fc1.weight",
    .down = "fc2.weight",
};

// The table of embeddings grows by as much when it is loaded, so a small file must not ask for
// more.
constexpr int kMostWidening = 16;

constexpr FolderDefaults kGptDefaults = {.epsilon_key = "layer_norm_epsilon",
                                         .epsilon = 1e-5,
                                         .activation_key = "activation_function",
                                         .activation = "gelu_new",
                                         .is_tied = true,
                                         .has_default_d_ff = true};

// A member that must have one value, which is also its default.
absl::Status ExpectBool(JsonConfigReader& reader, std::string_view key, bool expected) {
  VITRINE_ASSIGN_OR_RETURN(const bool value, reader.Bool(key, expected));
  if (value == expected) return absl::OkStatus();
  return reader.Unsupported(
      key, value ? "is true, which is not supported" : "is false, which is not supported");
}

absl::StatusOr<FolderFamily> ReadGptLike(JsonConfigReader& reader, const FolderDefaults& defaults,
                                         const TensorNames& names) {
  FolderFamily family;
  family.names = names;
  family.config.norm_kind = NormKind::kLayer;
  VITRINE_RETURN_IF_ERROR(ReadFolderConfig(reader, defaults, family));
  return family;
}

// Without this flag scores are not divided by the root of the head size.
absl::Status ReadScoreScale(JsonConfigReader& reader, ModelConfig& config) {
  VITRINE_ASSIGN_OR_RETURN(const bool is_scaled, reader.Bool("scale_attn_weights", true));
  if (!is_scaled) config.attention_scale = 1.0f;
  return absl::OkStatus();
}

// With this flag the scores of the i-th layer are divided by i, too.
absl::Status ReadLayerScale(JsonConfigReader& reader, ModelConfig& config) {
  VITRINE_ASSIGN_OR_RETURN(const bool is_scaled,
                           reader.Bool("scale_attn_by_inverse_layer_idx", false));
  if (!is_scaled) return absl::OkStatus();
  for (int i = 1; i <= config.num_layers; ++i) {
    config.layers.push_back({.query_scale = 1.0f / static_cast<float>(i)});
  }
  return absl::OkStatus();
}

// The norms of a Falcon layer, by generation.
absl::Status ReadFalconNorms(JsonConfigReader& reader, bool is_new, FolderFamily& family) {
  VITRINE_ASSIGN_OR_RETURN(const bool is_parallel, reader.Bool("parallel_attn", true));
  VITRINE_ASSIGN_OR_RETURN(const int num_norms,
                           reader.Int("num_ln_in_parallel_attn", 1, 2, is_new ? 2 : 1));
  family.config.is_parallel = is_new || is_parallel;
  TensorNames& names = family.names;
  if (is_new && !is_parallel) {
    return reader.Unsupported("parallel_attn", "is false in the new architecture");
  }
  if (!is_parallel) return absl::OkStatus();
  names.mlp_norm = names.mlp_norm_bias = {};
  if (num_norms == 1) return absl::OkStatus();
  names.attention_norm = "ln_attn.weight";
  names.attention_norm_bias = "ln_attn.bias";
  names.mlp_norm = "ln_mlp.weight";
  names.mlp_norm_bias = "ln_mlp.bias";
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FolderFamily> ReadGpt2(JsonConfigReader& reader) {
  UseGptNames(reader);
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family, ReadGptLike(reader, kGptDefaults, kGpt2Names));
  family.names.is_transposed = true;
  family.config.position_bias = PositionBias::kLearned;
  VITRINE_RETURN_IF_ERROR(ReadScoreScale(reader, family.config));
  VITRINE_RETURN_IF_ERROR(ReadLayerScale(reader, family.config));
  return family;
}

absl::StatusOr<FolderFamily> ReadGptBigCode(JsonConfigReader& reader) {
  UseGptNames(reader);
  FolderDefaults defaults = kGptDefaults;
  defaults.activation = "gelu_pytorch_tanh";
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family, ReadGptLike(reader, defaults, kGpt2Names));
  VITRINE_ASSIGN_OR_RETURN(const bool is_multi_query, reader.Bool("multi_query", true));
  if (is_multi_query) family.config.num_kv_heads = 1;
  family.names.qkv_order = QkvOrder::kGrouped;
  family.config.position_bias = PositionBias::kLearned;
  VITRINE_RETURN_IF_ERROR(ReadScoreScale(reader, family.config));
  return family;
}

absl::StatusOr<FolderFamily> ReadGptNeoX(JsonConfigReader& reader) {
  reader.Alias("rope_theta", "rotary_emb_base");
  reader.Alias("partial_rotary_factor", "rotary_pct");
  VITRINE_ASSIGN_OR_RETURN(
      FolderFamily family,
      ReadGptLike(reader, {.epsilon_key = "layer_norm_eps", .epsilon = 1e-5, .activation = "gelu"},
                  kGptNeoXNames));
  VITRINE_RETURN_IF_ERROR(ReadRopeConfig(reader, {.partial_rotary_factor = 0.25}, family.config));
  VITRINE_ASSIGN_OR_RETURN(family.config.is_parallel, reader.Bool("use_parallel_residual", true));
  VITRINE_ASSIGN_OR_RETURN(const bool has_bias, reader.Bool("attention_bias", true));
  if (has_bias) {
    family.names.qkv_bias = "attention.query_key_value.bias";
    family.names.attention_out_bias = "attention.dense.bias";
  }
  return family;
}

absl::StatusOr<FolderFamily> ReadGptJ(JsonConfigReader& reader) {
  UseGptNames(reader);
  FolderDefaults defaults = kGptDefaults;
  defaults.is_tied = false;
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family, ReadGptLike(reader, defaults, kGptJNames));
  ModelConfig& config = family.config;
  config.is_parallel = true;
  VITRINE_ASSIGN_OR_RETURN(config.rotary_dim, reader.Int("rotary_dim", 2, config.head_dim, 64));
  if (config.rotary_dim > config.head_dim || config.rotary_dim % 2 != 0) {
    return reader.Error("rotary_dim",
                        absl::StrCat("is ", config.rotary_dim, ", expected an even number up to ",
                                     config.head_dim));
  }
  config.rope_pairing = RopePairing::kInterleaved;
  config.rope_frequencies = RopeFrequencies(config.rotary_dim, 10000.0);
  return family;
}

absl::StatusOr<FolderFamily> ReadFalcon(JsonConfigReader& reader) {
  reader.Alias("num_hidden_layers", "n_layer");
  reader.Alias("num_attention_heads", "n_head");
  reader.Alias("hidden_size", "n_embed");
  reader.Alias("intermediate_size", "ffn_hidden_size");
  VITRINE_ASSIGN_OR_RETURN(const bool is_new, reader.Bool("new_decoder_architecture", false));
  VITRINE_ASSIGN_OR_RETURN(const bool is_multi_query, reader.Bool("multi_query", true));
  if (is_new) reader.Alias("num_key_value_heads", "num_kv_heads");
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family, ReadGptLike(reader,
                                                            {.epsilon_key = "layer_norm_epsilon",
                                                             .epsilon = 1e-5,
                                                             .activation_key = "activation",
                                                             .activation = "gelu",
                                                             .is_tied = true,
                                                             .has_default_d_ff = true,
                                                             .context_length = 2048},
                                                            kBloomNames));
  ModelConfig& config = family.config;
  // The old architecture knows one key head, or as many as query heads, whatever else is said.
  if (!is_new && is_multi_query) config.num_kv_heads = 1;
  VITRINE_RETURN_IF_ERROR(ReadFalconNorms(reader, is_new, family));
  VITRINE_ASSIGN_OR_RETURN(const bool has_bias, reader.Bool("bias", false));
  if (has_bias) {
    family.names.qkv_bias = "self_attention.query_key_value.bias";
    family.names.attention_out_bias = "self_attention.dense.bias";
    family.names.up_bias = "mlp.dense_h_to_4h.bias";
    family.names.down_bias = "mlp.dense_4h_to_h.bias";
  }
  VITRINE_ASSIGN_OR_RETURN(const bool is_alibi, reader.Bool("alibi", false));
  if (is_alibi) {
    config.position_bias = PositionBias::kAlibi;
    config.alibi_scale = config.attention_scale;
    reader.Ignore("rope_parameters");  // Written beside it, and not used.
    reader.Ignore("rope_scaling");
  } else {
    VITRINE_RETURN_IF_ERROR(ReadRopeConfig(reader, {}, config));
  }
  return family;
}

absl::StatusOr<FolderFamily> ReadMpt(JsonConfigReader& reader) {
  reader.Alias("num_hidden_layers", "n_layers");
  reader.Alias("num_attention_heads", "n_heads");
  reader.Alias("hidden_size", "d_model");
  reader.Alias("max_position_embeddings", "max_seq_len");
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family, ReadGptLike(reader,
                                                            {.epsilon_key = "layer_norm_epsilon",
                                                             .epsilon = 1e-5,
                                                             .activation = "gelu",
                                                             .is_tied = true,
                                                             .has_default_d_ff = true,
                                                             .context_length = 2048},
                                                            kMptNames));
  VITRINE_RETURN_IF_ERROR(ExpectBool(reader, "no_bias", true));
  ModelConfig& config = family.config;
  config.position_bias = PositionBias::kAlibi;
  VITRINE_ASSIGN_OR_RETURN(std::optional<JsonConfigReader> attention, reader.Object("attn_config"));
  if (!attention) return family;
  VITRINE_RETURN_IF_ERROR(ExpectBool(*attention, "alibi", true));
  VITRINE_ASSIGN_OR_RETURN(const double max_bias, attention->PositiveFloat("alibi_bias_max", 8.0));
  // Where the authors' code and transformers part there is no right answer.
  if (max_bias != config.alibi_max_bias) {
    return attention->Unsupported("alibi_bias_max", "is not 8, which is not supported");
  }
  VITRINE_ASSIGN_OR_RETURN(const double scale,
                           attention->PositiveFloat("softmax_scale", config.attention_scale));
  config.attention_scale = static_cast<float>(scale);
  VITRINE_ASSIGN_OR_RETURN(const double clip, attention->PositiveFloat("clip_qkv", 0.0));
  config.qkv_clip = static_cast<float>(clip);
  VITRINE_ASSIGN_OR_RETURN(const std::string type,
                           attention->String("attn_type", "multihead_attention"));
  if (type != "multihead_attention") {
    return attention->Unsupported("attn_type", absl::StrCat("is ", Quote(type)));
  }
  VITRINE_RETURN_IF_ERROR(attention->CheckRead({{"qk_ln", "prefix_lm", "attn_uses_sequence_id"}}));
  return family;
}

absl::StatusOr<FolderFamily> ReadBloom(JsonConfigReader& reader) {
  reader.Alias("num_hidden_layers", "n_layer");
  reader.Alias("num_attention_heads", "n_head");
  reader.Alias("hidden_size", "n_embed");
  reader.Alias("max_position_embeddings", "seq_length");
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family, ReadGptLike(reader,
                                                            {.epsilon_key = "layer_norm_epsilon",
                                                             .epsilon = 1e-5,
                                                             .activation = "gelu_pytorch_tanh",
                                                             .is_tied = true,
                                                             .has_default_d_ff = true,
                                                             .context_length = 2048},
                                                            kBloomNames));
  family.config.position_bias = PositionBias::kAlibi;
  TensorNames& names = family.names;
  names.embedding_norm = "word_embeddings_layernorm.weight";
  names.embedding_norm_bias = "word_embeddings_layernorm.bias";
  names.qkv_bias = "self_attention.query_key_value.bias";
  names.attention_out_bias = "self_attention.dense.bias";
  names.up_bias = "mlp.dense_h_to_4h.bias";
  names.down_bias = "mlp.dense_4h_to_h.bias";
  VITRINE_ASSIGN_OR_RETURN(const bool adds_to_norm,
                           reader.Bool("apply_residual_connection_post_layernorm", false));
  if (adds_to_norm) family.config.norm_placement = NormPlacement::kStream;
  return family;
}

// Where norms and projections of OPT stand. Norms without weights have no tensors that could tell
// which of them there are, so they are known in their usual places only.
absl::Status ReadOptNorms(JsonConfigReader& reader, FolderFamily& family) {
  ModelConfig& config = family.config;
  TensorNames& names = family.names;
  config.norm_epsilon = 1e-5f;  // Its norms know no other.
  VITRINE_ASSIGN_OR_RETURN(const bool is_before, reader.Bool("do_layer_norm_before", true));
  VITRINE_ASSIGN_OR_RETURN(const bool is_removed, reader.Bool("_remove_final_layer_norm", false));
  if (!is_before || is_removed) names.final_norm = names.final_norm_bias = {};
  if (!is_before) {
    config.norm_placement = NormPlacement::kStream;
    names.holds_next_attention_norm = true;
    std::swap(names.attention_norm, names.mlp_norm);
    std::swap(names.attention_norm_bias, names.mlp_norm_bias);
  }
  VITRINE_ASSIGN_OR_RETURN(config.norm_has_weight,
                           reader.Bool("layer_norm_elementwise_affine", true));
  if (config.norm_has_weight) return absl::OkStatus();
  if (!is_before || is_removed) {
    return reader.Unsupported("layer_norm_elementwise_affine",
                              "is false beside norms in other places than in front of blocks");
  }
  names.attention_norm = names.attention_norm_bias = names.mlp_norm = names.mlp_norm_bias =
      names.final_norm = names.final_norm_bias = {};
  return absl::OkStatus();
}

absl::StatusOr<FolderFamily> ReadOpt(JsonConfigReader& reader) {
  reader.Alias("intermediate_size", "ffn_dim");
  FolderDefaults defaults = kGptDefaults;
  defaults.activation = "relu";
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family, ReadGptLike(reader, defaults, kOptNames));
  ModelConfig& config = family.config;
  TensorNames& names = family.names;
  config.position_bias = PositionBias::kLearned;
  VITRINE_RETURN_IF_ERROR(ReadOptNorms(reader, family));
  VITRINE_ASSIGN_OR_RETURN(const int width,
                           reader.Int("word_embed_proj_dim", 1, kMaxWidth, config.d_model));
  if (width < config.d_model / kMostWidening) {
    return reader.Unsupported("word_embed_proj_dim",
                              absl::StrCat("is ", width, ", less than a ", kMostWidening,
                                           "th of hidden_size, ", config.d_model));
  }
  if (width != config.d_model) {
    config.d_embedding = width;
    names.embedding_projection = "decoder.project_in.weight";
    names.output_projection = "decoder.project_out.weight";
  }
  VITRINE_ASSIGN_OR_RETURN(const bool has_bias, reader.Bool("enable_bias", true));
  if (has_bias) {
    NameQkvBiases(names);
    names.attention_out_bias = "self_attn.out_proj.bias";
    names.up_bias = "fc1.bias";
    names.down_bias = "fc2.bias";
  }
  return family;
}

}  // namespace vitrine
