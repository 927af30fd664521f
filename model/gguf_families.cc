#include "model/gguf_families.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/detokenizer.h"
#include "model/gguf_config.h"
#include "model/gguf_rope.h"
#include "model/head_rules.h"
#include "model/quote.h"
#include "model/rope_frequencies.h"
#include "model/status.h"

namespace vitrine {
namespace {

constexpr int kMaxLength = std::numeric_limits<int32_t>::max();

constexpr HeadKeys kHeadKeys = {.d_model = "embedding_length",
                                .num_heads = "attention.head_count",
                                .num_kv_heads = "attention.head_count_kv",
                                .head_dim = "attention.key_length"};

absl::Status ReadSizes(GgufConfigReader& reader, ModelConfig& config) {
  VITRINE_ASSIGN_OR_RETURN(config.num_layers, reader.Int("block_count", 1, kMaxLayers));
  VITRINE_ASSIGN_OR_RETURN(config.d_model, reader.Int("embedding_length", 1, kMaxWidth));
  VITRINE_ASSIGN_OR_RETURN(config.d_ff, reader.Int("feed_forward_length", 1, kMaxWidth));
  VITRINE_ASSIGN_OR_RETURN(config.context_length, reader.Int("context_length", 1, kMaxLength));
  VITRINE_ASSIGN_OR_RETURN(
      const double epsilon,
      reader.PositiveFloat(config.norm_kind == NormKind::kRms ? "attention.layer_norm_rms_epsilon"
                                                              : "attention.layer_norm_epsilon"));
  config.norm_epsilon = static_cast<float>(epsilon);
  return absl::OkStatus();
}

absl::Status ReadAttention(GgufConfigReader& reader, ModelConfig& config) {
  VITRINE_RETURN_IF_ERROR(ReadHeads(reader, kHeadKeys, config));
  VITRINE_ASSIGN_OR_RETURN(const int value_length,
                           reader.Int("attention.value_length", 1, kMaxHeadDim, config.head_dim));
  if (value_length != config.head_dim) {
    return reader.Unsupported("attention.value_length",
                              absl::StrCat("is ", value_length, ", but heads of keys have ",
                                           config.head_dim, " dimensions: not supported"));
  }
  VITRINE_ASSIGN_OR_RETURN(const double scale,
                           reader.PositiveFloat("attention.scale", config.attention_scale));
  config.attention_scale = static_cast<float>(scale);
  return absl::OkStatus();
}

absl::Status ReadVocabulary(GgufConfigReader& reader, ModelConfig& config) {
  const TensorView* embedding = reader.tensors().Find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2 || embedding->rows() > kMaxVocabulary) {
    return absl::InvalidArgumentError(absl::StrCat(
        reader.tensors().label(), ": tensor \"token_embd.weight\" is missing or not a matrix of ",
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

bool HasInFirstLayer(const GgufConfigReader& reader, std::string_view name) {
  return reader.tensors().Find(absl::StrCat("blk.0.", std::string(name))) != nullptr;
}

// Which projections are fused and which have a bias, the first layer tells for all.
void NameOptionalTensors(const GgufConfigReader& reader, TensorNames& names) {
  const auto name_if_present = [&](std::string_view name, std::string_view& target) {
    if (HasInFirstLayer(reader, name)) target = name;
  };
  name_if_present("attn_qkv.weight", names.qkv);
  if (!names.qkv.empty()) names.q = names.k = names.v = {};
  name_if_present("attn_qkv.bias", names.qkv_bias);
  name_if_present("attn_q.bias", names.q_bias);
  name_if_present("attn_k.bias", names.k_bias);
  name_if_present("attn_v.bias", names.v_bias);
  name_if_present("attn_output.bias", names.attention_out_bias);
  name_if_present("ffn_gate.bias", names.gate_bias);
  name_if_present("ffn_up.bias", names.up_bias);
  name_if_present("ffn_down.bias", names.down_bias);
  name_if_present("attn_norm.bias", names.attention_norm_bias);
  name_if_present("ffn_norm.bias", names.mlp_norm_bias);
  if (reader.tensors().Find("output_norm.bias") != nullptr) {
    names.final_norm_bias = "output_norm.bias";
  }
  if (reader.tensors().Find("output.bias") != nullptr) names.output_bias = "output.bias";
}

void NamePostNorms(TensorNames& names) {
  names.attention_post_norm = "post_attention_norm.weight";
  names.mlp_post_norm = "post_ffw_norm.weight";
}

void NameQkNorms(TensorNames& names) {
  names.q_norm = "attn_q_norm.weight";
  names.k_norm = "attn_k_norm.weight";
}

// ---- what single families have beside their row of the table ------------------------------------

// A layout of q, k and v that converters write down, and of which one is in use.
absl::Status ExpectLayout(GgufConfigReader& reader, std::string_view expected) {
  VITRINE_ASSIGN_OR_RETURN(const std::string_view layout,
                           reader.String("tensor_data_layout", expected));
  if (layout == expected) return absl::OkStatus();
  return reader.Unsupported("tensor_data_layout",
                            absl::StrCat("is ", Quote(layout), ", which is not supported"));
}

// A mixture of experts, whose matrices are one tensor for each part. Layers without a router are
// dense. Whether the weights of the chosen ones sum to 1 is a property of the architecture.
absl::Status ReadExperts(GgufConfigReader& reader, bool normalizes_weights,
                         GgufDescription& model) {
  ModelConfig& config = model.config;
  ExpertConfig& experts = config.experts;
  VITRINE_ASSIGN_OR_RETURN(experts.count, reader.Int("expert_count", 1, kMaxExperts));
  VITRINE_ASSIGN_OR_RETURN(experts.per_token, reader.Int("expert_used_count", 1, experts.count));
  VITRINE_ASSIGN_OR_RETURN(experts.d_ff,
                           reader.Int("expert_feed_forward_length", 1, kMaxWidth, config.d_ff));
  experts.normalizes_weights = normalizes_weights;
  TensorNames& names = model.names;
  names.router = "ffn_gate_inp.weight";
  names.expert_gate = "ffn_gate_exps.weight";
  names.expert_up = "ffn_up_exps.weight";
  names.expert_down = "ffn_down_exps.weight";
  config.layers.resize(static_cast<size_t>(config.num_layers));
  for (int i = 0; i < config.num_layers; ++i) {
    const std::string router = absl::StrCat("blk.", i, ".", std::string(names.router));
    config.layers[static_cast<size_t>(i)].is_dense = reader.tensors().Find(router) == nullptr;
  }
  return absl::OkStatus();
}

// Rows of q and k permuted for interleaved pairs. Mixtral is a llama with experts.
absl::Status ReadLlama(GgufConfigReader& reader, GgufDescription& model) {
  VITRINE_RETURN_IF_ERROR(ExpectLayout(reader, "Meta AI original pth"));
  VITRINE_ASSIGN_OR_RETURN(const int experts, reader.Int("expert_count", 0, kMaxExperts, 0));
  return experts == 0 ? absl::OkStatus() : ReadExperts(reader, true, model);
}

absl::Status ReadOlmoE(GgufConfigReader& reader, GgufDescription& model) {
  model.config.qk_norm = QkNorm::kAllHeads;
  NameQkNorms(model.names);
  return ReadExperts(reader, false, model);
}

absl::Status ReadQwen2Moe(GgufConfigReader& reader, GgufDescription& model) {
  VITRINE_RETURN_IF_ERROR(ReadExperts(reader, false, model));
  VITRINE_ASSIGN_OR_RETURN(model.config.experts.d_shared,
                           reader.Int("expert_shared_feed_forward_length", 1, kMaxWidth));
  TensorNames& names = model.names;
  names.shared_router = "ffn_gate_inp_shexp.weight";
  names.shared_gate = "ffn_gate_shexp.weight";
  names.shared_up = "ffn_up_shexp.weight";
  names.shared_down = "ffn_down_shexp.weight";
  return absl::OkStatus();
}

absl::Status ReadQwen3Moe(GgufConfigReader& reader, GgufDescription& model) {
  model.config.qk_norm = QkNorm::kPerHead;
  NameQkNorms(model.names);
  return ReadExperts(reader, true, model);
}

absl::Status ReadQwen3(GgufConfigReader&, GgufDescription& model) {
  model.config.qk_norm = QkNorm::kPerHead;
  NameQkNorms(model.names);
  return absl::OkStatus();
}

absl::Status ReadGranite(GgufConfigReader& reader, GgufDescription& model) {
  ModelConfig& config = model.config;
  VITRINE_ASSIGN_OR_RETURN(const double embedding, reader.PositiveFloat("embedding_scale", 1.0));
  VITRINE_ASSIGN_OR_RETURN(const double residual, reader.PositiveFloat("residual_scale", 1.0));
  VITRINE_ASSIGN_OR_RETURN(const double logits, reader.PositiveFloat("logit_scale", 1.0));
  config.embedding_scale = static_cast<float>(embedding);
  config.residual_scale = static_cast<float>(residual);
  config.logit_scale = static_cast<float>(1.0 / logits);
  return absl::OkStatus();
}

absl::Status ReadSmolLm3(GgufConfigReader&, GgufDescription& model) {
  constexpr int kPeriod = 4;  // No key says so.
  ModelConfig& config = model.config;
  config.layers.resize(static_cast<size_t>(config.num_layers));
  for (int i = kPeriod - 1; i < config.num_layers; i += kPeriod) {
    config.layers[static_cast<size_t>(i)].rotates = false;
  }
  return absl::OkStatus();
}

// Files without a limit on q, k and v have no key for it.
absl::Status ReadQkvClip(GgufConfigReader& reader, ModelConfig& config) {
  VITRINE_ASSIGN_OR_RETURN(const double clip, reader.PositiveFloat("attention.clamp_kqv", 0.0));
  config.qkv_clip = static_cast<float>(clip);
  return absl::OkStatus();
}

absl::Status ReadOlmo(GgufConfigReader& reader, GgufDescription& model) {
  VITRINE_RETURN_IF_ERROR(ReadQkvClip(reader, model.config));
  model.config.norm_has_weight = false;
  TensorNames& names = model.names;
  names.attention_norm = names.mlp_norm = names.final_norm = {};
  return absl::OkStatus();
}

absl::Status ReadOlmo2(GgufConfigReader&, GgufDescription& model) {
  model.config.norm_placement = NormPlacement::kOutput;
  model.config.qk_norm = QkNorm::kAllHeads;
  model.names.attention_norm = model.names.mlp_norm = {};
  NamePostNorms(model.names);
  NameQkNorms(model.names);
  return absl::OkStatus();
}

// All layers have the window; 0 and no key mean that none has.
absl::Status ReadPhi3(GgufConfigReader& reader, GgufDescription& model) {
  ModelConfig& config = model.config;
  VITRINE_ASSIGN_OR_RETURN(const int window,
                           reader.Int("attention.sliding_window", 0, kMaxLength, 0));
  if (window > 0) {
    config.layers.assign(static_cast<size_t>(config.num_layers), {.window = window});
  }
  model.names.gate_up = "ffn_up.weight";
  model.names.gate = model.names.up = {};
  return absl::OkStatus();
}

absl::Status ReadGemma(GgufConfigReader&, GgufDescription& model) {
  model.config.embedding_scale = std::sqrt(static_cast<float>(model.config.d_model));
  return absl::OkStatus();
}

// Every `period`-th layer sees all keys, the others a window; one layer count stands for the model
// whose scores are scaled by the width per head instead of the head's.
absl::Status ReadGemmaLayers(GgufConfigReader& reader, int period, int wide_layers,
                             int default_window, ModelConfig& config) {
  VITRINE_ASSIGN_OR_RETURN(const int window,
                           reader.Int("attention.sliding_window", 0, kMaxLength, default_window));
  VITRINE_ASSIGN_OR_RETURN(period,
                           reader.Int("attention.sliding_window_pattern", 1, kMaxLayers, period));
  if (window > 0) {
    config.layers.resize(static_cast<size_t>(config.num_layers));
    for (int i = 0; i < config.num_layers; ++i) {
      if ((i + 1) % period != 0) config.layers[static_cast<size_t>(i)].window = window;
    }
  }
  if (config.num_layers == wide_layers && !reader.Has("attention.scale")) {
    const int width_per_head = config.d_model / config.num_heads;
    config.attention_scale = static_cast<float>(1.0 / std::sqrt(width_per_head));
  }
  return absl::OkStatus();
}

absl::Status ReadGemma2(GgufConfigReader& reader, GgufDescription& model) {
  VITRINE_RETURN_IF_ERROR(ReadGemma(reader, model));
  ModelConfig& config = model.config;
  VITRINE_RETURN_IF_ERROR(ReadGemmaLayers(reader, 2, 46, 4096, config));
  config.norm_placement = NormPlacement::kInputAndOutput;
  NamePostNorms(model.names);
  VITRINE_ASSIGN_OR_RETURN(const double attention_cap,
                           reader.PositiveFloat("attn_logit_softcapping", 50.0));
  VITRINE_ASSIGN_OR_RETURN(const double logit_cap,
                           reader.PositiveFloat("final_logit_softcapping", 30.0));
  config.attention_softcap = static_cast<float>(attention_cap);
  config.logit_softcap = static_cast<float>(logit_cap);
  return absl::OkStatus();
}

absl::Status ReadGemma3(GgufConfigReader& reader, GgufDescription& model) {
  VITRINE_RETURN_IF_ERROR(ReadGemma(reader, model));
  ModelConfig& config = model.config;
  VITRINE_RETURN_IF_ERROR(ReadGemmaLayers(reader, 6, 62, 0, config));
  config.norm_placement = NormPlacement::kInputAndOutput;
  config.qk_norm = QkNorm::kPerHead;
  NamePostNorms(model.names);
  NameQkNorms(model.names);
  if (reader.Has("final_logit_softcapping")) {
    VITRINE_ASSIGN_OR_RETURN(const double cap, reader.PositiveFloat("final_logit_softcapping"));
    config.logit_softcap = static_cast<float>(cap);
  }
  VITRINE_ASSIGN_OR_RETURN(const double local_base,
                           reader.PositiveFloat("rope.freq_base_swa", 10000.0));
  config.local_rope_frequencies = RopeFrequencies(config.rotary_dim, local_base);
  for (LayerConfig& layer : config.layers) layer.local_rope = layer.window > 0;
  return absl::OkStatus();
}

absl::Status ReadGpt2(GgufConfigReader&, GgufDescription& model) {
  model.config.position_bias = PositionBias::kLearned;
  model.names.position_table = "position_embd.weight";
  return absl::OkStatus();
}

absl::Status ReadGptNeoX(GgufConfigReader& reader, GgufDescription& model) {
  VITRINE_ASSIGN_OR_RETURN(model.config.is_parallel, reader.Bool("use_parallel_residual", true));
  return absl::OkStatus();
}

// The feed-forward block reads what attention reads.
absl::Status ReadPhi2(GgufConfigReader&, GgufDescription& model) {
  model.config.is_parallel = true;
  model.names.mlp_norm = {};
  return absl::OkStatus();
}

// A layer without a norm of its own for the feed-forward block is a parallel one.
absl::Status ReadStableLm(GgufConfigReader& reader, GgufDescription& model) {
  reader.Ignore("use_parallel_residual");
  if (HasInFirstLayer(reader, "attn_q_norm.weight")) {
    model.config.qk_norm = QkNorm::kOwnLayer;
    NameQkNorms(model.names);
  }
  if (HasInFirstLayer(reader, "ffn_norm.weight")) return absl::OkStatus();
  model.config.is_parallel = true;
  model.names.mlp_norm = {};
  return absl::OkStatus();
}

absl::Status ReadFalcon(GgufConfigReader& reader, GgufDescription& model) {
  VITRINE_RETURN_IF_ERROR(ExpectLayout(reader, "jploski"));
  model.config.is_parallel = true;
  TensorNames& names = model.names;
  names.mlp_norm = {};
  if (!HasInFirstLayer(reader, "attn_norm_2.weight")) return absl::OkStatus();
  // The norm that 7B shares is the feed-forward block's in 40B.
  names.mlp_norm = names.attention_norm;
  names.mlp_norm_bias = names.attention_norm_bias;
  names.attention_norm = "attn_norm_2.weight";
  names.attention_norm_bias = "attn_norm_2.bias";
  return absl::OkStatus();
}

absl::Status ReadMpt(GgufConfigReader& reader, GgufDescription& model) {
  model.config.position_bias = PositionBias::kAlibi;
  VITRINE_ASSIGN_OR_RETURN(const double max_bias, reader.PositiveFloat("attention.max_alibi_bias"));
  model.config.alibi_max_bias = static_cast<float>(max_bias);
  return ReadQkvClip(reader, model.config);
}

absl::Status ReadBloom(GgufConfigReader&, GgufDescription& model) {
  model.config.position_bias = PositionBias::kAlibi;
  model.names.embedding_norm = "token_embd_norm.weight";
  model.names.embedding_norm_bias = "token_embd_norm.bias";
  return absl::OkStatus();
}

// ---- the families -------------------------------------------------------------------------------

struct Family {
  std::string_view architecture;  // general.architecture
  NormKind norm_kind;
  std::optional<RopePairing> rope;  // None: no rotation.
  Activation activation;
  bool is_gated;
  absl::Status (*read_rest)(GgufConfigReader& reader, GgufDescription& model);
};

constexpr NormKind kRms = NormKind::kRms;
constexpr NormKind kLayer = NormKind::kLayer;
constexpr RopePairing kPairs = RopePairing::kInterleaved;
constexpr RopePairing kHalves = RopePairing::kHalfSplit;

constexpr Family kFamilies[] = {
    {"bloom", kLayer, std::nullopt, Activation::kGeluTanh, false, ReadBloom},
    {"falcon", kLayer, kHalves, Activation::kGeluErf, false, ReadFalcon},
    {"gemma", kRms, kHalves, Activation::kGeluTanh, true, ReadGemma},
    {"gemma2", kRms, kHalves, Activation::kGeluTanh, true, ReadGemma2},
    {"gemma3", kRms, kHalves, Activation::kGeluTanh, true, ReadGemma3},
    {"gpt2", kLayer, std::nullopt, Activation::kGeluTanh, false, ReadGpt2},
    {"gptneox", kLayer, kHalves, Activation::kGeluErf, false, ReadGptNeoX},
    {"granite", kRms, kPairs, Activation::kSilu, true, ReadGranite},
    {"llama", kRms, kPairs, Activation::kSilu, true, ReadLlama},
    {"mpt", kLayer, std::nullopt, Activation::kGeluErf, false, ReadMpt},
    {"olmo", kLayer, kPairs, Activation::kSilu, true, ReadOlmo},
    {"olmo2", kRms, kHalves, Activation::kSilu, true, ReadOlmo2},
    {"olmoe", kRms, kHalves, Activation::kSilu, true, ReadOlmoE},
    {"phi2", kLayer, kHalves, Activation::kGeluTanh, false, ReadPhi2},
    {"phi3", kRms, kHalves, Activation::kSilu, true, ReadPhi3},
    {"qwen2", kRms, kHalves, Activation::kSilu, true, nullptr},
    {"qwen2moe", kRms, kHalves, Activation::kSilu, true, ReadQwen2Moe},
    {"qwen3", kRms, kHalves, Activation::kSilu, true, ReadQwen3},
    {"qwen3moe", kRms, kHalves, Activation::kSilu, true, ReadQwen3Moe},
    {"smollm3", kRms, kPairs, Activation::kSilu, true, ReadSmolLm3},
    {"stablelm", kLayer, kHalves, Activation::kSilu, true, ReadStableLm},
    {"starcoder", kLayer, std::nullopt, Activation::kGeluTanh, false, ReadGpt2},
    {"starcoder2", kLayer, kHalves, Activation::kGeluTanh, false, nullptr},
};

absl::StatusOr<GgufDescription> ReadFamily(const Family& family, GgufConfigReader& reader) {
  GgufDescription model;
  ModelConfig& config = model.config;
  model.names = kGgufTensorNames;
  config.norm_kind = family.norm_kind;
  config.activation = family.activation;
  VITRINE_RETURN_IF_ERROR(ReadSizes(reader, config));
  VITRINE_RETURN_IF_ERROR(ReadAttention(reader, config));
  if (family.rope) VITRINE_RETURN_IF_ERROR(ReadGgufRope(reader, *family.rope, config));
  VITRINE_RETURN_IF_ERROR(ReadVocabulary(reader, config));
  if (!family.is_gated) model.names.gate = {};
  NameOptionalTensors(reader, model.names);
  if (family.read_rest != nullptr) VITRINE_RETURN_IF_ERROR(family.read_rest(reader, model));
  VITRINE_RETURN_IF_ERROR(reader.CheckAllRead());
  return model;
}

// The file's stem names a model that has no name of its own.
absl::StatusOr<std::string> ReadName(const GgufFile& file) {
  if (!file.Has("general.name")) {
    std::string_view stem = file.label();
    if (stem.ends_with(".gguf")) stem.remove_suffix(5);
    return std::string(stem);
  }
  VITRINE_ASSIGN_OR_RETURN(const std::string_view name, file.String("general.name"));
  if (FindInvalidUtf8(name) != std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.label(), ": general.name is not UTF-8: ", Quote(name)));
  }
  return std::string(name);
}

absl::StatusOr<GgufDescription> DescribeByFamily(const GgufFile& file, const Checkpoint& tensors) {
  VITRINE_ASSIGN_OR_RETURN(const std::string_view architecture,
                           file.String("general.architecture"));
  for (const Family& family : kFamilies) {
    if (family.architecture != architecture) continue;
    GgufConfigReader reader(file, tensors, std::string(architecture));
    VITRINE_ASSIGN_OR_RETURN(GgufDescription model, ReadFamily(family, reader));
    model.config.architecture = std::string(architecture);
    VITRINE_ASSIGN_OR_RETURN(model.config.name, ReadName(file));
    return model;
  }
  return absl::UnimplementedError(
      absl::StrCat(file.label(), ": unsupported architecture ", Quote(architecture)));
}

}  // namespace

absl::StatusOr<GgufDescription> DescribeGguf(const GgufFile& file, const Checkpoint& tensors) {
  absl::StatusOr<GgufDescription> model = DescribeByFamily(file, tensors);
  // A key that is missing is a fault of the file, not a file that is missing.
  if (absl::IsNotFound(model.status())) {
    return absl::InvalidArgumentError(model.status().message());
  }
  return model;
}

}  // namespace vitrine
