#include "model/tokenizer_files.h"

#include <filesystem>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/gguf.h"
#include "model/json.h"
#include "model/json_config.h"
#include "model/mapped_file.h"
#include "model/sentencepiece_tokenizer.h"
#include "model/status.h"

namespace vitrine {
namespace {

constexpr std::string_view kTokenizerFile = "tokenizer.json";
constexpr std::string_view kModelFile = "tokenizer.model";
constexpr std::string_view kConfigFile = "tokenizer_config.json";
constexpr size_t kMaxConfigValues = 1'000'000;

// What tokenizer_config.json says: texts of special tokens, empty where there are none, and whether
// they go around a text, which a tokenizer.json says itself.
struct TokenizerConfig {
  std::string bos;
  std::string eos;
  bool add_bos = true;
  bool add_eos = false;
};

// A token is named by its text, or by an object with its text and flags.
absl::StatusOr<std::string> TokenText(const JsonValue& config, const JsonConfigReader& reader,
                                      std::string_view key) {
  const JsonValue* value = config.Find(key);
  if (value == nullptr || value->AsObject() == nullptr) return reader.String(key, "");
  return JsonConfigReader(*value, absl::StrCat(std::string(kConfigFile), ": ", std::string(key)))
      .String("content");
}

absl::StatusOr<TokenizerConfig> ReadConfig(const std::string& folder) {
  TokenizerConfig result;
  const absl::StatusOr<MappedFile> file =
      MappedFile::Open(absl::StrCat(folder, "/", std::string(kConfigFile)));
  if (absl::IsNotFound(file.status())) return result;
  VITRINE_RETURN_IF_ERROR(file.status());
  VITRINE_ASSIGN_OR_RETURN(const JsonValue config,
                           ParseJson(file->bytes(), kConfigFile, kMaxConfigValues));
  const JsonConfigReader reader(config, std::string(kConfigFile));
  VITRINE_ASSIGN_OR_RETURN(result.bos, TokenText(config, reader, "bos_token"));
  VITRINE_ASSIGN_OR_RETURN(result.eos, TokenText(config, reader, "eos_token"));
  VITRINE_ASSIGN_OR_RETURN(result.add_bos, reader.Bool("add_bos_token", true));
  VITRINE_ASSIGN_OR_RETURN(result.add_eos, reader.Bool("add_eos_token", false));
  return result;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ReadTokenizerFolder(const std::string& folder,
                                                               const SpecialTokens& special) {
  const absl::StatusOr<MappedFile> file =
      MappedFile::Open(absl::StrCat(folder, "/", std::string(kTokenizerFile)));
  if (absl::IsNotFound(file.status())) {
    const absl::StatusOr<MappedFile> model =
        MappedFile::Open(absl::StrCat(folder, "/", std::string(kModelFile)));
    // Of two files that are missing the usual one is named.
    if (absl::IsNotFound(model.status())) return file.status();
    VITRINE_RETURN_IF_ERROR(model.status());
    VITRINE_ASSIGN_OR_RETURN(const TokenizerConfig config, ReadConfig(folder));
    if (config.add_eos) {
      return absl::UnimplementedError(
          absl::StrCat(std::string(kConfigFile), ": add_eos_token is not supported"));
    }
    return ParseSentencePieceModel(model->bytes(), std::string(kModelFile), special.eos_ids,
                                   config.add_bos);
  }
  VITRINE_RETURN_IF_ERROR(file.status());
  VITRINE_ASSIGN_OR_RETURN(const TokenizerConfig texts, ReadConfig(folder));
  SpecialTokens tokens = special;
  tokens.bos_text = texts.bos;
  if (tokens.eos_ids.empty()) tokens.eos_text = texts.eos;
  return ParseTokenizerJson(file->bytes(), kTokenizerFile, std::move(tokens));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return ReadTokenizerFolder(path, {});
  if (path.ends_with(".json")) {
    VITRINE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
    return ParseTokenizerJson(file.bytes(), LastPathComponent(path), {});
  }
  const std::string name = LastPathComponent(path);
  if (name.find(".model") != std::string::npos) {
    VITRINE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
    return ParseSentencePieceModel(file.bytes(), name, {});
  }
  VITRINE_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  return CreateTokenizer(*file);
}

}  // namespace vitrine
