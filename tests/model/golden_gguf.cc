#include "tests/model/golden_gguf.h"

#include <cmath>
#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/block_formats.h"
#include "model/safetensors.h"
#include "nlohmann/json.hpp"
#include "tests/model/gguf_builder.h"

namespace vitrine {
namespace {

using Json = nlohmann::json;

struct Matrix {
  std::vector<float> values;
  int64_t rows = 1;
  int64_t columns = 0;
};

// The rows of a matrix in the order of `rows`.
Matrix TakeRows(const Matrix& matrix, const std::vector<int64_t>& rows) {
  Matrix taken{.values = {}, .rows = matrix.rows, .columns = matrix.columns};
  for (const int64_t row : rows) {
    const auto begin = matrix.values.begin() + row * matrix.columns;
    taken.values.insert(taken.values.end(), begin, begin + matrix.columns);
  }
  return taken;
}

// llama.cpp turns pairs (2i, 2i + 1) where transformers turns (i, i + half).
Matrix InterleaveHeads(const Matrix& matrix, int64_t head_dim) {
  std::vector<int64_t> rows;
  for (int64_t head = 0; head < matrix.rows / head_dim; ++head) {
    for (int64_t i = 0; i < head_dim / 2; ++i) {
      rows.push_back(head * head_dim + i);
      rows.push_back(head * head_dim + i + head_dim / 2);
    }
  }
  return TakeRows(matrix, rows);
}

// From [heads, (q, k, v), head_dim] to [(q, k, v), heads, head_dim].
Matrix UngroupQkv(Matrix matrix, int64_t heads) {
  const bool is_vector = matrix.rows == 1;
  if (is_vector) std::swap(matrix.rows, matrix.columns);
  const int64_t head_dim = matrix.rows / (3 * heads);
  std::vector<int64_t> rows;
  for (int64_t part = 0; part < 3; ++part) {
    for (int64_t head = 0; head < heads; ++head) {
      for (int64_t i = 0; i < head_dim; ++i) rows.push_back((head * 3 + part) * head_dim + i);
    }
  }
  Matrix result = TakeRows(matrix, rows);
  if (is_vector) std::swap(result.rows, result.columns);
  return result;
}

Matrix Transpose(const Matrix& matrix) {
  Matrix result{.values = {}, .rows = matrix.columns, .columns = matrix.rows};
  for (int64_t row = 0; row < result.rows; ++row) {
    for (int64_t column = 0; column < result.columns; ++column) {
      result.values.push_back(matrix.values[static_cast<size_t>(column * matrix.columns + row)]);
    }
  }
  return result;
}

// Parts of names, in the order in which they are replaced.
struct Rename {
  std::string_view from;
  std::string_view to;
};

constexpr Rename kLlamaNames[] = {
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
    {"model.layers.", "blk."},
    {"input_layernorm", "attn_norm"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"block_sparse_moe.experts.0.w1", "ffn_gate_exps"},
    {"block_sparse_moe.experts.0.w2", "ffn_down_exps"},
    {"block_sparse_moe.experts.0.w3", "ffn_up_exps"},
    {"mlp.experts.0.gate_proj", "ffn_gate_exps"},
    {"mlp.experts.0.up_proj", "ffn_up_exps"},
    {"mlp.experts.0.down_proj", "ffn_down_exps"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.gate.weight", "ffn_gate_inp.weight"},
    {"self_attn.q_layernorm.norms.0", "attn_q_norm"},
    {"self_attn.k_layernorm.norms.0", "attn_k_norm"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
};

constexpr Rename kGpt2Names[] = {
    {"transformer.wte", "token_embd"},
    {"transformer.wpe", "position_embd"},
    {"transformer.ln_f", "output_norm"},
    {"transformer.h.", "blk."},
    {"ln_1", "attn_norm"},
    {"ln_2", "ffn_norm"},
    {"attn.c_attn", "attn_qkv"},
    {"attn.c_proj", "attn_output"},
    {"mlp.c_fc", "ffn_up"},
    {"mlp.c_proj", "ffn_down"},
};

constexpr Rename kNeoXNames[] = {
    {"gpt_neox.embed_in", "token_embd"},
    {"gpt_neox.final_layer_norm", "output_norm"},
    {"embed_out", "output"},
    {"gpt_neox.layers.", "blk."},
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"attention.query_key_value", "attn_qkv"},
    {"attention.dense", "attn_output"},
    {"mlp.dense_h_to_4h", "ffn_up"},
    {"mlp.dense_4h_to_h", "ffn_down"},
};

struct Form {
  std::string_view model_type;
  std::string_view architecture;
  std::span<const Rename> names;
  bool has_post_norms = false;  // post_attention_layernorm follows attention itself.
  bool has_offset_norms = false;
};

constexpr Form kForms[] = {
    {"llama", "llama", kLlamaNames},
    {"qwen2", "qwen2", kLlamaNames},
    {"qwen3", "qwen3", kLlamaNames},
    {"phi3", "phi3", kLlamaNames},
    {"olmo", "olmo", kLlamaNames},
    {"olmo2", "olmo2", kLlamaNames, true},
    {"gemma2", "gemma2", kLlamaNames, true, true},
    {"gemma3_text", "gemma3", kLlamaNames, true, true},
    {"gpt2", "gpt2", kGpt2Names},
    {"gpt_neox", "gptneox", kNeoXNames},
    {"stablelm", "stablelm", kLlamaNames},
    {"mixtral", "llama", kLlamaNames},
    {"qwen2_moe", "qwen2moe", kLlamaNames},
};

Json ReadConfig(const std::string& folder) {
  std::ifstream file(folder + "/config.json");
  if (!file) throw std::runtime_error("cannot read config.json of " + folder);
  return Json::parse(file);
}

const Form* FindForm(const Json& config) {
  const std::string model_type = config["model_type"];
  for (const Form& form : kForms) {
    if (form.model_type == model_type) return &form;
  }
  return nullptr;
}

class Converter {
 public:
  Converter(const std::string& folder, const Json& config, const Form& form)
      : config_(config),
        form_(form),
        file_(*SafetensorsFile::Open(folder + "/model.safetensors")) {}

  std::string Convert() {
    gguf_.SetString("general.architecture", form_.architecture);
    SetSizes();
    SetExperts();
    SetAttention();
    SetRope();
    for (const TensorView& tensor : file_->tensors()) AddTensor(tensor);
    return gguf_.Bytes();
  }

 private:
  std::string Key(const std::string& key) const {
    return std::string(form_.architecture) + "." + key;
  }
  // The first of two names that config.json has.
  Json Value(const std::string& name, const std::string& other) const {
    return config_.contains(name) ? config_[name] : config_[other];
  }

  void SetSizes() {
    const uint32_t d_model = Value("hidden_size", "n_embd");
    gguf_.SetUint(Key("block_count"), Value("num_hidden_layers", "n_layer"));
    gguf_.SetUint(Key("embedding_length"), d_model);
    gguf_.SetUint(Key("context_length"), Value("max_position_embeddings", "n_positions"));
    const Json d_ff = Value("intermediate_size", "n_inner");
    gguf_.SetUint(Key("feed_forward_length"), d_ff.is_null() ? 4 * d_model : d_ff.get<uint32_t>());
    if (config_.contains("rms_norm_eps")) {
      gguf_.SetFloat(Key("attention.layer_norm_rms_epsilon"), config_["rms_norm_eps"]);
    } else if (form_.architecture == "olmo") {
      gguf_.SetFloat(Key("attention.layer_norm_epsilon"), 1e-5f);  // config.json has none.
    } else {
      gguf_.SetFloat(Key("attention.layer_norm_epsilon"),
                     Value("layer_norm_epsilon", "layer_norm_eps"));
    }
  }

  void SetExperts() {
    const std::string count = config_.contains("num_experts") ? "num_experts" : "num_local_experts";
    if (!config_.contains(count)) return;
    gguf_.SetUint(Key("expert_count"), config_[count]);
    gguf_.SetUint(Key("expert_used_count"), config_["num_experts_per_tok"]);
    if (config_.contains("moe_intermediate_size")) {
      gguf_.SetUint(Key("expert_feed_forward_length"), config_["moe_intermediate_size"]);
    }
    if (config_.contains("shared_expert_intermediate_size")) {
      gguf_.SetUint(Key("expert_shared_feed_forward_length"),
                    config_["shared_expert_intermediate_size"]);
    }
  }

  void SetAttention() {
    heads_ = Value("num_attention_heads", "n_head");
    head_dim_ = Value("hidden_size", "n_embd").get<int64_t>() / heads_;
    gguf_.SetUint(Key("attention.head_count"), static_cast<uint32_t>(heads_));
    if (config_.contains("num_key_value_heads")) {
      gguf_.SetUint(Key("attention.head_count_kv"), config_["num_key_value_heads"]);
    }
    if (config_.contains("head_dim") && !config_["head_dim"].is_null()) {
      head_dim_ = config_["head_dim"];
      gguf_.SetUint(Key("attention.key_length"), static_cast<uint32_t>(head_dim_));
      gguf_.SetUint(Key("attention.value_length"), static_cast<uint32_t>(head_dim_));
    }
    if (config_.contains("query_pre_attn_scalar")) {
      const float scalar = config_["query_pre_attn_scalar"];
      gguf_.SetFloat(Key("attention.scale"), 1.0f / std::sqrt(scalar));
    }
    for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"}) {
      if (config_.contains(cap) && !config_[cap].is_null()) gguf_.SetFloat(Key(cap), config_[cap]);
    }
    if (config_.contains("clip_qkv") && !config_["clip_qkv"].is_null()) {
      gguf_.SetFloat(Key("attention.clamp_kqv"), config_["clip_qkv"]);
    }
    const bool has_window = config_.contains("sliding_window") &&
                            !config_["sliding_window"].is_null() &&
                            config_.value("use_sliding_window", true);
    if (has_window) gguf_.SetUint(Key("attention.sliding_window"), config_["sliding_window"]);
    if (form_.architecture == "gemma3") {
      uint32_t period = 1;  // Of the layers that see all keys.
      while (config_["layer_types"][period - 1] != "full_attention") ++period;
      gguf_.SetUint(Key("attention.sliding_window_pattern"), period);
    }
    if (config_.contains("use_parallel_residual")) {
      gguf_.SetBool(Key("use_parallel_residual"), config_["use_parallel_residual"]);
    }
  }

  void SetRope() {
    if (!config_.contains("rope_parameters")) return;
    Json rope = config_["rope_parameters"];
    if (rope.contains("full_attention")) {
      gguf_.SetFloat(Key("rope.freq_base_swa"), rope["sliding_attention"]["rope_theta"]);
      rope = rope["full_attention"];
    }
    gguf_.SetFloat(Key("rope.freq_base"), rope["rope_theta"]);
    const double share = rope.value("partial_rotary_factor", 1.0);
    gguf_.SetUint(Key("rope.dimension_count"), static_cast<uint32_t>(head_dim_ * share));
    if (rope["rope_type"] == "default") return;
    gguf_.SetString(Key("rope.scaling.type"), rope["rope_type"].get<std::string>());
    gguf_.SetFloat(Key("rope.scaling.factor"), rope["factor"]);
    if (rope["rope_type"] != "yarn") return;
    gguf_.SetUint(Key("rope.scaling.original_context_length"),
                  rope["original_max_position_embeddings"]);
    gguf_.SetFloat(Key("rope.scaling.yarn_beta_fast"), rope["beta_fast"]);
    gguf_.SetFloat(Key("rope.scaling.yarn_beta_slow"), rope["beta_slow"]);
  }

  std::string Name(std::string name) const {
    const auto rename = [&](const Rename& part) {
      const size_t at = name.find(part.from);
      if (at != std::string::npos) name.replace(at, part.from.size(), part.to);
    };
    for (const Rename& part : form_.names) rename(part);
    rename({"post_attention_layernorm", form_.has_post_norms ? "post_attention_norm" : "ffn_norm"});
    return name;
  }

  // A tensor for each head or expert is one for all of them there, named after the first.
  Matrix ReadStack(const TensorView& first, int& count) const {
    Matrix stack{.values = {}, .rows = 0, .columns = first.columns()};
    const size_t number = first.name.rfind(".0.") + 1;
    for (count = 0;; ++count) {
      std::string name = first.name;
      const TensorView* tensor = file_->Find(name.replace(number, 1, std::to_string(count)));
      if (tensor == nullptr) return stack;
      const std::vector<float> values = Read(*tensor).values;
      stack.values.insert(stack.values.end(), values.begin(), values.end());
      stack.rows += tensor->rows();
    }
  }

  static bool IsOfStack(const std::string& name) {
    return name.find(".norms.") != std::string::npos || name.find(".experts.") != std::string::npos;
  }

  static Matrix Read(const TensorView& tensor) {
    Matrix matrix{.values = std::vector<float>(static_cast<size_t>(tensor.elements())),
                  .rows = tensor.rows(),
                  .columns = tensor.columns()};
    DequantizeRow(tensor.dtype, tensor.data, tensor.elements(), matrix.values.data());
    return matrix;
  }

  void AddTensor(const TensorView& tensor) {
    const bool is_of_stack = IsOfStack(tensor.name);
    const bool is_first = tensor.name.find("norms.0.") != std::string::npos ||
                          tensor.name.find("experts.0.") != std::string::npos;
    if (is_of_stack && !is_first) return;
    int count = 1;
    Matrix matrix = is_of_stack ? ReadStack(tensor, count) : Read(tensor);
    const std::string name = Name(tensor.name);
    const bool is_q_or_k = name.ends_with("attn_q.weight") || name.ends_with("attn_k.weight");
    const bool turns_pairs = form_.architecture == "llama" || form_.architecture == "olmo";
    if (turns_pairs && is_q_or_k) matrix = InterleaveHeads(matrix, head_dim_);
    if (form_.architecture == "gptneox" && name.find("attn_qkv") != std::string::npos) {
      matrix = UngroupQkv(matrix, heads_);
    }
    if (form_.architecture == "gpt2" && tensor.name.find(".c_") != std::string::npos &&
        tensor.shape.size() == 2) {
      matrix = Transpose(matrix);
    }
    if (form_.has_offset_norms && name.find("norm") != std::string::npos) {
      for (float& value : matrix.values) value += 1.0f;
    }
    std::vector<uint64_t> dimensions = {static_cast<uint64_t>(matrix.columns)};
    if (tensor.shape.size() == 2) dimensions.push_back(static_cast<uint64_t>(matrix.rows / count));
    if (is_of_stack) dimensions.push_back(static_cast<uint64_t>(count));
    const auto* bytes = reinterpret_cast<const char*>(matrix.values.data());
    gguf_.AddTensor(name, dimensions, 0, std::string(bytes, matrix.values.size() * sizeof(float)));
  }

  const Json& config_;
  const Form& form_;
  std::unique_ptr<SafetensorsFile> file_;
  GgufBuilder gguf_;
  int64_t heads_ = 0;
  int64_t head_dim_ = 0;
};

}  // namespace

bool HasGgufForm(const std::string& folder) {
  const Json config = ReadConfig(folder);
  if (FindForm(config) == nullptr || !std::ifstream(folder + "/model.safetensors")) return false;
  if (config.contains("quantization_config")) return false;
  // Their frequencies have another form in GGUF, or none.
  const std::string rope = config.value(Json::json_pointer("/rope_parameters/rope_type"), "");
  return rope != "llama3" && rope != "dynamic";
}

std::string ToGguf(const std::string& folder) {
  const Json config = ReadConfig(folder);
  return Converter(folder, config, *FindForm(config)).Convert();
}

}  // namespace vitrine
