#include "model/folder_families.h"

#include <unistd.h>

#include <cmath>
#include <limits>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/json.h"
#include "model/json_config.h"
#include "model/mapped_file.h"
#include "model/quote.h"
#include "model/rope_config.h"
#include "model/status.h"

namespace vitrine {
namespace {

constexpr char kConfigFile[] = "config.json";
constexpr char kGenerationFile[] = "generation_config.json";
// A config.json has some dozens of values; one per layer and expert is far below this.
constexpr size_t kMaxConfigValues = 100'000;

constexpr TensorNames kLlamaNames = {
    .embedding = "model.embed_tokens.weight",
    .final_norm = "model.norm.weight",
    .output_head = "lm_head.weight",
    .layer_prefix = "model.layers.",
    .attention_norm = "input_layernorm.weight",
    .q = "self_attn.q_proj.weight",
    .k = "self_attn.k_proj.weight",
    .v = "self_attn.v_proj.weight",
    .attention_out = "self_attn.o_proj.weight",
    .mlp_norm = "post_attention_layernorm.weight",
    .gate = "mlp.gate_proj.weight",
    .up = "mlp.up_proj.weight",
    .down = "mlp.down_proj.weight",
    .ignored_suffix = ".rotary_emb.inv_freq",
};

absl::StatusOr<Activation> ReadActivation(const JsonConfigReader& reader) {
  struct Name {
    std::string_view name;
    Activation activation;
  };
  constexpr Name kNames[] = {
      {"silu", Activation::kSilu},          {"swish", Activation::kSilu},
      {"gelu", Activation::kGeluErf},       {"gelu_new", Activation::kGeluTanh},
      {"gelu_fast", Activation::kGeluTanh}, {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"relu", Activation::kRelu},          {"relu2", Activation::kReluSquared},
  };
  VITRINE_ASSIGN_OR_RETURN(const std::string name, reader.String("hidden_act", "silu"));
  for (const Name& known : kNames) {
    if (known.name == name) return known.activation;
  }
  return reader.Unsupported("hidden_act",
                            absl::StrCat("is ", Quote(name), ", which is not supported"));
}

absl::Status ReadSizes(const JsonConfigReader& reader, ModelConfig& config) {
  VITRINE_ASSIGN_OR_RETURN(config.num_layers, reader.Int("num_hidden_layers", 1, kMaxLayers));
  VITRINE_ASSIGN_OR_RETURN(config.d_model, reader.Int("hidden_size", 1, kMaxWidth));
  VITRINE_ASSIGN_OR_RETURN(config.d_ff, reader.Int("intermediate_size", 1, kMaxWidth));
  VITRINE_ASSIGN_OR_RETURN(config.vocabulary, reader.Int("vocab_size", 1, kMaxVocabulary));
  VITRINE_ASSIGN_OR_RETURN(config.context_length, reader.Int("max_position_embeddings", 1,
                                                             std::numeric_limits<int>::max()));
  VITRINE_ASSIGN_OR_RETURN(const double epsilon, reader.PositiveFloat("rms_norm_eps"));
  config.norm_epsilon = static_cast<float>(epsilon);
  return absl::OkStatus();
}

absl::Status ReadHeads(const JsonConfigReader& reader, ModelConfig& config) {
  VITRINE_ASSIGN_OR_RETURN(config.num_heads, reader.Int("num_attention_heads", 1, kMaxHeads));
  VITRINE_ASSIGN_OR_RETURN(config.num_kv_heads, reader.Int("num_key_value_heads", 1,
                                                           config.num_heads, config.num_heads));
  if (config.num_heads % config.num_kv_heads != 0) {
    return reader.Error("num_key_value_heads",
                        absl::StrCat("is ", config.num_kv_heads, ", which does not divide ",
                                     config.num_heads, " heads"));
  }
  if (!reader.Has("head_dim") && config.d_model % config.num_heads != 0) {
    return reader.Error("hidden_size",
                        absl::StrCat("is ", config.d_model, ", which is not a multiple of ",
                                     config.num_heads, " heads"));
  }
  VITRINE_ASSIGN_OR_RETURN(
      config.head_dim, reader.Int("head_dim", 1, kMaxHeadDim, config.d_model / config.num_heads));
  if (config.head_dim > kMaxHeadDim || config.head_dim % 2 != 0) {
    return reader.Error("head_dim", absl::StrCat("is ", config.head_dim,
                                                 ", expected an even number up to ", kMaxHeadDim));
  }
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(config.head_dim));
  return absl::OkStatus();
}

// All that llama and its relatives share.
absl::StatusOr<FolderDescription> ReadLlamaLike(const JsonConfigReader& reader) {
  FolderDescription model;
  model.names = kLlamaNames;
  ModelConfig& config = model.config;
  VITRINE_RETURN_IF_ERROR(ReadSizes(reader, config));
  VITRINE_RETURN_IF_ERROR(ReadHeads(reader, config));
  VITRINE_RETURN_IF_ERROR(ReadRopeConfig(reader, config));
  VITRINE_ASSIGN_OR_RETURN(config.activation, ReadActivation(reader));
  config.rope_pairing = RopePairing::kHalfSplit;
  VITRINE_ASSIGN_OR_RETURN(const bool is_tied, reader.Bool("tie_word_embeddings", false));
  model.names.output_head_rule = is_tied ? OutputHead::kTied : OutputHead::kOwn;
  return model;
}

void NameAttentionBiases(TensorNames& names) {
  names.q_bias = "self_attn.q_proj.bias";
  names.k_bias = "self_attn.k_proj.bias";
  names.v_bias = "self_attn.v_proj.bias";
}

// attention_bias gives all four projections of attention a bias.
absl::Status ReadAttentionBias(const JsonConfigReader& reader, TensorNames& names) {
  VITRINE_ASSIGN_OR_RETURN(const bool has_bias, reader.Bool("attention_bias", false));
  if (!has_bias) return absl::OkStatus();
  NameAttentionBiases(names);
  names.attention_out_bias = "self_attn.o_proj.bias";
  return absl::OkStatus();
}

// Layers from `begin` on see only a window of keys.
absl::Status ReadWindow(const JsonConfigReader& reader, int begin, ModelConfig& config) {
  if (!reader.Has("sliding_window")) return absl::OkStatus();
  VITRINE_ASSIGN_OR_RETURN(const int window,
                           reader.Int("sliding_window", 1, std::numeric_limits<int>::max()));
  config.layers.resize(static_cast<size_t>(config.num_layers));
  for (int layer = begin; layer < config.num_layers; ++layer) {
    config.layers[static_cast<size_t>(layer)].window = window;
  }
  return absl::OkStatus();
}

absl::StatusOr<FolderDescription> ReadLlama(const JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(FolderDescription model, ReadLlamaLike(reader));
  VITRINE_RETURN_IF_ERROR(ReadAttentionBias(reader, model.names));
  VITRINE_ASSIGN_OR_RETURN(const bool has_mlp_bias, reader.Bool("mlp_bias", false));
  if (has_mlp_bias) {
    model.names.gate_bias = "mlp.gate_proj.bias";
    model.names.up_bias = "mlp.up_proj.bias";
    model.names.down_bias = "mlp.down_proj.bias";
  }
  return model;
}

absl::StatusOr<FolderDescription> ReadMistral(const JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(FolderDescription model, ReadLlamaLike(reader));
  VITRINE_RETURN_IF_ERROR(ReadWindow(reader, 0, model.config));
  return model;
}

// Qwen 2 and 3 name the windowed layers one by one in new files, and by the first of them in old.
absl::Status ReadQwenWindow(const JsonConfigReader& reader, ModelConfig& config) {
  VITRINE_ASSIGN_OR_RETURN(const bool has_window, reader.Bool("use_sliding_window", false));
  if (!has_window) return absl::OkStatus();
  VITRINE_ASSIGN_OR_RETURN(const int first_layer,
                           reader.Int("max_window_layers", 0, kMaxLayers, 28));
  VITRINE_RETURN_IF_ERROR(ReadWindow(reader, first_layer, config));
  VITRINE_ASSIGN_OR_RETURN(const std::vector<std::string> types, reader.Strings("layer_types"));
  if (types.empty() || config.layers.empty()) return absl::OkStatus();
  if (types.size() != config.layers.size()) {
    return reader.Error("layer_types", absl::StrCat("has ", types.size(), " entries for ",
                                                    config.layers.size(), " layers"));
  }
  VITRINE_ASSIGN_OR_RETURN(const int window,
                           reader.Int("sliding_window", 1, std::numeric_limits<int>::max()));
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] != "full_attention" && types[i] != "sliding_attention") {
      return reader.Unsupported(
          "layer_types", absl::StrCat("holds ", Quote(types[i]), ", which is not supported"));
    }
    config.layers[i].window = types[i] == "sliding_attention" ? window : 0;
  }
  return absl::OkStatus();
}

absl::StatusOr<FolderDescription> ReadQwen2(const JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(FolderDescription model, ReadLlamaLike(reader));
  NameAttentionBiases(model.names);
  VITRINE_RETURN_IF_ERROR(ReadQwenWindow(reader, model.config));
  return model;
}

absl::StatusOr<FolderDescription> ReadQwen3(const JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(FolderDescription model, ReadLlamaLike(reader));
  VITRINE_RETURN_IF_ERROR(ReadAttentionBias(reader, model.names));
  VITRINE_RETURN_IF_ERROR(ReadQwenWindow(reader, model.config));
  model.config.qk_norm = QkNorm::kPerHead;
  model.names.q_norm = "self_attn.q_norm.weight";
  model.names.k_norm = "self_attn.k_norm.weight";
  return model;
}

absl::StatusOr<FolderDescription> ReadPhi3(const JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(FolderDescription model, ReadLlamaLike(reader));
  VITRINE_RETURN_IF_ERROR(ReadWindow(reader, 0, model.config));
  TensorNames& names = model.names;
  names.q = names.k = names.v = names.gate = names.up = {};
  names.qkv = "self_attn.qkv_proj.weight";
  names.gate_up = "mlp.gate_up_proj.weight";
  return model;
}

absl::StatusOr<FolderDescription> ReadOlmo2(const JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(FolderDescription model, ReadLlamaLike(reader));
  VITRINE_RETURN_IF_ERROR(ReadAttentionBias(reader, model.names));
  model.config.norm_placement = NormPlacement::kOutput;
  model.config.qk_norm = QkNorm::kAllHeads;
  TensorNames& names = model.names;
  names.attention_norm = names.mlp_norm = {};
  names.attention_post_norm = "post_attention_layernorm.weight";
  names.mlp_post_norm = "post_feedforward_layernorm.weight";
  names.q_norm = "self_attn.q_norm.weight";
  names.k_norm = "self_attn.k_norm.weight";
  return model;
}

struct Family {
  std::string_view model_type;
  absl::StatusOr<FolderDescription> (*read)(const JsonConfigReader& reader);
};

constexpr Family kFamilies[] = {
    {"llama", ReadLlama}, {"mistral", ReadMistral}, {"qwen2", ReadQwen2},
    {"qwen3", ReadQwen3}, {"phi3", ReadPhi3},       {"olmo2", ReadOlmo2},
};

absl::StatusOr<FolderDescription> ReadFamily(const JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(const std::string model_type, reader.String("model_type"));
  if (reader.Has("quantization_config")) {
    return reader.Unsupported("quantization_config", "is not supported");
  }
  for (const Family& family : kFamilies) {
    if (family.model_type != model_type) continue;
    VITRINE_ASSIGN_OR_RETURN(FolderDescription model, family.read(reader));
    model.config.architecture = model_type;
    return model;
  }
  return absl::UnimplementedError(
      absl::StrCat(kConfigFile, ": unsupported model_type ", Quote(model_type)));
}

absl::Status ReadSpecialIds(const JsonConfigReader& reader, FolderDescription& model) {
  const int max_id = model.config.vocabulary - 1;
  VITRINE_ASSIGN_OR_RETURN(const std::vector<int> bos_ids, reader.Ids("bos_token_id", max_id));
  if (!bos_ids.empty()) model.bos_id = bos_ids.front();
  VITRINE_ASSIGN_OR_RETURN(const std::vector<int> eos_ids, reader.Ids("eos_token_id", max_id));
  if (!eos_ids.empty()) model.eos_ids.assign(eos_ids.begin(), eos_ids.end());
  return absl::OkStatus();
}

// The tree of one JSON file of the folder, which is an object.
absl::StatusOr<JsonValue> ReadObject(const std::string& folder, const std::string& name) {
  VITRINE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(folder + "/" + name));
  VITRINE_ASSIGN_OR_RETURN(JsonValue value, ParseJson(file.bytes(), name, kMaxConfigValues));
  if (value.AsObject() == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", std::string(value.kind()), ", expected an object"));
  }
  return value;
}

}  // namespace

absl::StatusOr<FolderDescription> DescribeFolder(const std::string& folder) {
  VITRINE_ASSIGN_OR_RETURN(const JsonValue config, ReadObject(folder, kConfigFile));
  const JsonConfigReader reader(config, kConfigFile);
  VITRINE_ASSIGN_OR_RETURN(FolderDescription model, ReadFamily(reader));
  model.config.name = LastPathComponent(folder);
  VITRINE_RETURN_IF_ERROR(ReadSpecialIds(reader, model));
  if (access((folder + "/" + kGenerationFile).c_str(), F_OK) == 0) {
    VITRINE_ASSIGN_OR_RETURN(const JsonValue generation, ReadObject(folder, kGenerationFile));
    VITRINE_RETURN_IF_ERROR(ReadSpecialIds(JsonConfigReader(generation, kGenerationFile), model));
  }
  return model;
}

}  // namespace vitrine
