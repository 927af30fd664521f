#include "model/folder_families.h"

#include <unistd.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/folder_config.h"
#include "model/folder_quantization.h"
#include "model/gpt_folder_families.h"
#include "model/json.h"
#include "model/json_config.h"
#include "model/llama_folder_families.h"
#include "model/mapped_file.h"
#include "model/quote.h"
#include "model/status.h"

namespace vitrine {
namespace {

constexpr char kConfigFile[] = "config.json";
constexpr char kGenerationFile[] = "generation_config.json";
// A config.json has some dozens of values; one per layer and expert is far below this.
constexpr size_t kMaxConfigValues = 100'000;

struct Family {
  std::string_view model_type;
  absl::StatusOr<FolderFamily> (*read)(JsonConfigReader& reader);
};

constexpr Family kFamilies[] = {
    {"bloom", ReadBloom},
    {"falcon", ReadFalcon},
    {"gemma", ReadGemma},
    {"gemma2", ReadGemma2},
    {"gemma3_text", ReadGemma3},
    {"gpt2", ReadGpt2},
    {"gpt_bigcode", ReadGptBigCode},
    {"gpt_neox", ReadGptNeoX},
    {"gptj", ReadGptJ},
    {"granite", ReadGranite},
    {"llama", ReadLlama},
    {"mistral", ReadMistral},
    {"mixtral", ReadMixtral},
    {"mpt", ReadMpt},
    {"olmo", ReadOlmo},
    {"olmo2", ReadOlmo2},
    {"olmoe", ReadOlmoE},
    {"opt", ReadOpt},
    {"phi", ReadPhi},
    {"phi3", ReadPhi3},
    {"qwen2", ReadQwen2},
    {"qwen2_moe", ReadQwen2Moe},
    {"qwen3", ReadQwen3},
    {"qwen3_moe", ReadQwen3Moe},
    {"smollm3", ReadSmolLm3},
    {"stablelm", ReadStableLm},
    {"starcoder2", ReadStarcoder2},
};

// Members by which one family or another computes something else. One that a family has not read
// is not known to it.
constexpr std::string_view kFeatures[] = {
    "add_cross_attention",
    "alibi",
    "apply_residual_connection_post_layernorm",
    "attention_bias",
    "attention_chunk_size",
    "attention_multiplier",
    "attn_logit_softcapping",
    "attn_temperature_tuning",
    "clip_qkv",
    "embedding_multiplier",
    "final_logit_softcapping",
    "is_encoder_decoder",
    "lm_head_multiplier",
    "logit_scale",
    "logits_scaling",
    "mlp_bias",
    "moe_intermediate_size",
    "n_routed_experts",
    "no_rope_layers",
    "num_experts",
    "num_local_experts",
    "parallel_attn",
    "partial_rotary_factor",
    "qk_layernorm",
    "qk_norm",
    "query_pre_attn_scalar",
    "residual_multiplier",
    "rope_local_base_freq",
    "rope_parameters",
    "rope_scaling",
    "rotary_pct",
    "scale_attn_by_inverse_layer_idx",
    "sliding_window",
    "sliding_window_pattern",
    "use_bidirectional_attention",
    "use_mrope",
    "use_parallel_residual",
    "use_qk_norm",
    "use_qkv_bias",
    "use_sliding_window",
};

absl::StatusOr<FolderFamily> ReadFamily(JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(const std::string model_type, reader.String("model_type"));
  VITRINE_ASSIGN_OR_RETURN(const std::optional<Fp8Blocks> fp8_blocks, ReadQuantization(reader));
  for (const Family& known : kFamilies) {
    if (known.model_type != model_type) continue;
    VITRINE_ASSIGN_OR_RETURN(FolderFamily family, known.read(reader));
    VITRINE_RETURN_IF_ERROR(reader.CheckRead(kFeatures));
    family.config.architecture = model_type;
    family.names.fp8_blocks = fp8_blocks;
    return family;
  }
  return absl::UnimplementedError(
      absl::StrCat(kConfigFile, ": unsupported model_type ", Quote(model_type)));
}

absl::Status ReadSpecialIds(JsonConfigReader& reader, FolderDescription& model) {
  const int max_id = model.config.vocabulary - 1;
  VITRINE_ASSIGN_OR_RETURN(const std::vector<int> bos_ids, reader.Ids("bos_token_id", max_id));
  if (!bos_ids.empty()) model.bos_id = bos_ids.front();
  VITRINE_ASSIGN_OR_RETURN(const std::vector<int> eos_ids, reader.Ids("eos_token_id", max_id));
  if (!eos_ids.empty()) model.eos_ids.assign(eos_ids.begin(), eos_ids.end());
  return absl::OkStatus();
}

absl::Status ReadNumber(JsonConfigReader& reader, std::string_view key, double min, double max,
                        std::optional<float>& target) {
  if (!reader.Has(key)) return absl::OkStatus();
  VITRINE_ASSIGN_OR_RETURN(const double value, reader.Number(key, min, max));
  target = static_cast<float>(value);
  return absl::OkStatus();
}

// Without do_sample the numbers beside it are not in force: such a model answers greedily.
absl::Status ReadSamplingDefaults(JsonConfigReader& reader, SamplingDefaults& defaults) {
  constexpr double kTiny = 1e-6;  // Where a field must be above 0.
  constexpr double kMax = 100.0;
  VITRINE_ASSIGN_OR_RETURN(const bool is_sampled, reader.Bool("do_sample", true));
  if (!is_sampled) {
    defaults.temperature = 0.0f;
    return absl::OkStatus();
  }
  VITRINE_RETURN_IF_ERROR(ReadNumber(reader, "temperature", 0, kMax, defaults.temperature));
  VITRINE_RETURN_IF_ERROR(ReadNumber(reader, "top_p", kTiny, 1, defaults.top_p));
  VITRINE_RETURN_IF_ERROR(ReadNumber(reader, "min_p", 0, 1 - kTiny, defaults.min_p));
  VITRINE_RETURN_IF_ERROR(ReadNumber(reader, "typical_p", kTiny, 1, defaults.typical_p));
  VITRINE_RETURN_IF_ERROR(
      ReadNumber(reader, "repetition_penalty", kTiny, kMax, defaults.repetition_penalty));
  if (reader.Has("top_k")) {
    VITRINE_ASSIGN_OR_RETURN(defaults.top_k,
                             reader.Int("top_k", 0, std::numeric_limits<int>::max()));
  }
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
  VITRINE_ASSIGN_OR_RETURN(const JsonValue value, ReadObject(folder, kConfigFile));
  JsonConfigReader reader(value, kConfigFile);
  FolderDescription model;
  VITRINE_ASSIGN_OR_RETURN(FolderFamily family, ReadFamily(reader));
  model.config = std::move(family.config);
  model.names = family.names;
  model.config.name = LastPathComponent(folder);
  VITRINE_RETURN_IF_ERROR(ReadSpecialIds(reader, model));
  if (access((folder + "/" + kGenerationFile).c_str(), F_OK) == 0) {
    VITRINE_ASSIGN_OR_RETURN(const JsonValue generation, ReadObject(folder, kGenerationFile));
    JsonConfigReader generation_reader(generation, kGenerationFile);
    VITRINE_RETURN_IF_ERROR(ReadSpecialIds(generation_reader, model));
    VITRINE_RETURN_IF_ERROR(ReadSamplingDefaults(generation_reader, model.sampling));
  }
  return model;
}

}  // namespace vitrine
