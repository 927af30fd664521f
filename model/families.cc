#include "model/families.h"

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/detokenizer.h"
#include "model/gguf_config.h"
#include "model/llama_family.h"
#include "model/quote.h"
#include "model/status.h"

namespace vitrine {
namespace {

struct Family {
  std::string_view architecture;  // general.architecture
  absl::StatusOr<ModelConfig> (*read_config)(GgufConfigReader& reader);
};

constexpr Family kFamilies[] = {
    {"llama", ReadLlamaConfig},
};

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

absl::StatusOr<ModelConfig> ReadConfigOfFamily(const GgufFile& file) {
  VITRINE_ASSIGN_OR_RETURN(const std::string_view architecture,
                           file.String("general.architecture"));
  for (const Family& family : kFamilies) {
    if (family.architecture != architecture) continue;
    GgufConfigReader reader(file, std::string(architecture));
    VITRINE_ASSIGN_OR_RETURN(ModelConfig config, family.read_config(reader));
    VITRINE_RETURN_IF_ERROR(reader.CheckAllRead());
    config.architecture = std::string(architecture);
    VITRINE_ASSIGN_OR_RETURN(config.name, ReadName(file));
    return config;
  }
  return absl::UnimplementedError(
      absl::StrCat(file.label(), ": unsupported architecture ", Quote(architecture)));
}

}  // namespace

absl::StatusOr<ModelConfig> ReadConfig(const GgufFile& file) {
  absl::StatusOr<ModelConfig> config = ReadConfigOfFamily(file);
  // A key that is missing is a fault of the file, not a file that is missing.
  if (absl::IsNotFound(config.status())) {
    return absl::InvalidArgumentError(config.status().message());
  }
  return config;
}

}  // namespace vitrine
