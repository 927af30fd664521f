#include "model/folder_quantization.h"

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "model/config.h"
#include "model/quote.h"
#include "model/status.h"

namespace vitrine {
namespace {

constexpr Fp8Blocks kWholeMatrix = {};
constexpr Fp8Blocks kOneRow = {.rows = 1};

absl::Status ExpectString(const JsonConfigReader& reader, std::string_view key,
                          std::initializer_list<std::string_view> known) {
  VITRINE_ASSIGN_OR_RETURN(const std::string value,
                           reader.String(key, std::string(*known.begin())));
  for (const std::string_view each : known) {
    if (value == each) return absl::OkStatus();
  }
  return reader.Unsupported(key, absl::StrCat("is ", Quote(value), ": not supported"));
}

absl::Status ExpectBool(const JsonConfigReader& reader, std::string_view key, bool expected) {
  VITRINE_ASSIGN_OR_RETURN(const bool value, reader.Bool(key, expected));
  if (value == expected) return absl::OkStatus();
  return reader.Unsupported(key, value ? "is true: not supported" : "is false: not supported");
}

// A member that may be there, but not say anything.
absl::Status ExpectEmpty(const JsonConfigReader& reader, std::string_view key) {
  VITRINE_ASSIGN_OR_RETURN(const std::optional<JsonConfigReader> object, reader.Object(key));
  if (!object) return absl::OkStatus();
  return object->CheckKnown({});
}

absl::StatusOr<Fp8Blocks> ReadBlockSize(const JsonConfigReader& reader, std::string_view key) {
  VITRINE_ASSIGN_OR_RETURN(const std::vector<int> sizes, reader.Ids(key, kMaxWidth));
  if (sizes.size() != 2 || sizes[0] == 0 || sizes[1] == 0) {
    return reader.Error(key, "is no pair of sizes above 0");
  }
  return Fp8Blocks{.rows = sizes[0], .columns = sizes[1]};
}

// transformers and vLLM.
absl::StatusOr<Fp8Blocks> ReadFp8(const JsonConfigReader& reader) {
  VITRINE_RETURN_IF_ERROR(ExpectString(reader, "activation_scheme", {"dynamic", "static"}));
  VITRINE_RETURN_IF_ERROR(ExpectString(reader, "fmt", {"e4m3", "e5m2"}));
  VITRINE_RETURN_IF_ERROR(ExpectString(reader, "scale_fmt", {"float", "ue8m0"}));
  VITRINE_RETURN_IF_ERROR(ExpectString(reader, "expert_dtype", {"fp8"}));
  if (reader.IsNull("weight_block_size")) return kWholeMatrix;
  if (!reader.Has("weight_block_size")) return Fp8Blocks{.rows = 128, .columns = 128};
  return ReadBlockSize(reader, "weight_block_size");
}

absl::StatusOr<Fp8Blocks> ReadFbgemm(const JsonConfigReader&) { return kOneRow; }

// One group of compressed-tensors.
absl::StatusOr<Fp8Blocks> ReadGroup(const JsonConfigReader& group) {
  if (group.Has("output_activations")) {
    return group.Unsupported("output_activations", "is set: not supported");
  }
  VITRINE_ASSIGN_OR_RETURN(const std::optional<JsonConfigReader> weights, group.Object("weights"));
  if (!weights) return group.Error("weights", "is missing");
  VITRINE_ASSIGN_OR_RETURN(const int bits, weights->Int("num_bits", 1, 64));
  if (bits != 8) {
    return weights->Unsupported("num_bits", absl::StrCat("is ", bits, ": not supported"));
  }
  VITRINE_ASSIGN_OR_RETURN(const std::string type, weights->String("type"));
  if (type != "float") {
    return weights->Unsupported("type", absl::StrCat("is ", Quote(type), ": not supported"));
  }
  VITRINE_RETURN_IF_ERROR(ExpectBool(*weights, "symmetric", true));
  VITRINE_RETURN_IF_ERROR(ExpectBool(*weights, "dynamic", false));
  VITRINE_RETURN_IF_ERROR(ExpectString(*weights, "strategy", {"tensor", "channel", "block"}));
  VITRINE_ASSIGN_OR_RETURN(const std::string strategy, weights->String("strategy", "tensor"));
  if (strategy == "block") return ReadBlockSize(*weights, "block_structure");
  return strategy == "channel" ? kOneRow : kWholeMatrix;
}

absl::StatusOr<Fp8Blocks> ReadCompressedTensors(const JsonConfigReader& reader) {
  VITRINE_RETURN_IF_ERROR(ExpectString(reader, "format", {"float-quantized", "naive-quantized"}));
  if (reader.Has("kv_cache_scheme")) {
    return reader.Unsupported("kv_cache_scheme", "is set: not supported");
  }
  VITRINE_RETURN_IF_ERROR(ExpectEmpty(reader, "transform_config"));
  VITRINE_RETURN_IF_ERROR(ExpectEmpty(reader, "sparsity_config"));
  VITRINE_ASSIGN_OR_RETURN(const std::optional<JsonConfigReader> groups,
                           reader.Object("config_groups"));
  if (!groups) return reader.Error("config_groups", "is missing");
  constexpr std::string_view kGroup[] = {"group_0"};
  VITRINE_RETURN_IF_ERROR(groups->CheckKnown(kGroup));
  VITRINE_ASSIGN_OR_RETURN(const std::optional<JsonConfigReader> group, groups->Object("group_0"));
  if (!group) return groups->Error("group_0", "is missing");
  return ReadGroup(*group);
}

struct Method {
  std::string_view name;
  absl::StatusOr<Fp8Blocks> (*read)(const JsonConfigReader& reader);
};

constexpr Method kMethods[] = {
    {"compressed-tensors", ReadCompressedTensors},
    {"fbgemm_fp8", ReadFbgemm},
    {"fp8", ReadFp8},
};

}  // namespace

absl::StatusOr<std::optional<Fp8Blocks>> ReadQuantization(JsonConfigReader& reader) {
  VITRINE_ASSIGN_OR_RETURN(const std::optional<JsonConfigReader> quantization,
                           reader.Object("quantization_config"));
  if (!quantization) return std::optional<Fp8Blocks>();
  VITRINE_ASSIGN_OR_RETURN(const std::string name, quantization->String("quant_method"));
  for (const Method& method : kMethods) {
    if (method.name != name) continue;
    VITRINE_ASSIGN_OR_RETURN(const Fp8Blocks blocks, method.read(*quantization));
    return std::optional<Fp8Blocks>(blocks);
  }
  return quantization->Unsupported("quant_method",
                                   absl::StrCat("is ", Quote(name), ": not supported"));
}

}  // namespace vitrine
