// Hugging Face families that came before llama or beside it, each with names of its own: from GPT-2
// to Falcon, Bloom and OPT.
#pragma once

#include "absl/status/statusor.h"
#include "model/folder_config.h"

namespace vitrine {

// Each reads one model_type. UNIMPLEMENTED names a feature that is not supported, INVALID_ARGUMENT
// a member that is missing or breaks a rule.
absl::StatusOr<FolderFamily> ReadGpt2(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadGptBigCode(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadGptNeoX(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadGptJ(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadFalcon(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadMpt(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadBloom(JsonConfigReader& reader);
absl::StatusOr<FolderFamily> ReadOpt(JsonConfigReader& reader);

}  // namespace vitrine
