// Hugging Face families whose tensors carry llama's names, from llama itself to Gemma 3.
#pragma once

#include "absl/status/statusor.h"
#include "model/folder_config.h"

namespace vitrine {

// Each reads one model_type. UNIMPLEMENTED names a feature that is not supported, INVALID_ARGUMENT
// a member that is missing or breaks a rule.
absl::StatusOr<FolderFamily> ReadLlama(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadMistral(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadMixtral(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadQwen2(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadQwen3(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadQwen2Moe(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadQwen3Moe(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadPhi(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadPhi3(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadOlmo(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadOlmo2(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadOlmoE(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadGranite(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadSmolLm3(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadStableLm(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadStarcoder2(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadGemma(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadGemma2(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadGemma3(JsonConfigReader& reader);

}  // namespace vitrine
