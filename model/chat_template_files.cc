#include "model/chat_template_files.h"

#include <dirent.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/jinja/parser.h"
#include "model/json.h"
#include "model/mapped_file.h"
#include "model/status.h"

namespace vitrine {
namespace {

constexpr char kGgufKey[] = "tokenizer.chat_template";
constexpr std::string_view kJinja = ".jinja";
constexpr size_t kMaxNamedTemplates = 64;
constexpr size_t kMaxConfigBytes = 32 << 20;
constexpr size_t kMaxConfigValues = 1'000'000;

// The text of a file; empty when there is none.
absl::StatusOr<std::string> ReadText(const std::string& path, size_t max_bytes) {
  const absl::StatusOr<MappedFile> file = MappedFile::Open(path);
  if (absl::IsNotFound(file.status())) return std::string();
  if (!file.ok()) return file.status();
  if (file->bytes().size() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(LastPathComponent(path), " is larger than ", max_bytes, " bytes"));
  }
  return std::string(file->bytes());
}

absl::Status AddNamedFiles(const std::string& folder, ChatTemplateSource& source) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(folder.c_str()), closedir);
  if (directory == nullptr) return absl::OkStatus();
  while (const dirent* entry = readdir(directory.get())) {
    const std::string_view name = entry->d_name;
    if (name.size() > kJinja.size() && name.ends_with(kJinja)) names.emplace_back(name);
    if (names.size() > kMaxNamedTemplates) {
      return absl::InvalidArgumentError("additional_chat_templates has more than 64 templates");
    }
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    VITRINE_ASSIGN_OR_RETURN(std::string text,
                             ReadText(folder + "/" + name, jinja::kMaxTemplateBytes));
    source.templates.push_back({name.substr(0, name.size() - kJinja.size()), std::move(text)});
  }
  return absl::OkStatus();
}

absl::Status AddConfigTemplates(const JsonValue& value, ChatTemplateSource& source) {
  if (const std::string* text = value.AsString()) {
    source.templates.push_back({"default", *text});
    return absl::OkStatus();
  }
  if (value.is_null()) return absl::OkStatus();
  const JsonValue::Array* const list = value.AsArray();
  if (list == nullptr) {
    return absl::InvalidArgumentError("tokenizer_config.json: chat_template is no text or list");
  }
  for (const JsonValue& named : *list) {
    const JsonValue* const name = named.Find("name");
    const JsonValue* const text = named.Find("template");
    if (name == nullptr || text == nullptr || name->AsString() == nullptr ||
        text->AsString() == nullptr) {
      return absl::InvalidArgumentError(
          "tokenizer_config.json: an entry of chat_template is no {name, template}");
    }
    source.templates.push_back({*name->AsString(), *text->AsString()});
  }
  return absl::OkStatus();
}

// "bos_token": a text, or an object with the text as its content.
void AddSpecialTokens(const JsonValue& config, ChatTemplateSource& source) {
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token",
                           "cls_token", "mask_token"}) {
    const JsonValue* token = config.Find(name);
    if (token != nullptr && token->AsObject() != nullptr) token = token->Find("content");
    if (token != nullptr && token->AsString() != nullptr) {
      source.special_tokens.emplace_back(name, *token->AsString());
    }
  }
}

absl::Status AddGgufTokens(const GgufFile& file, ChatTemplateSource& source) {
  const absl::StatusOr<std::vector<std::string_view>> tokens =
      file.StringArray("tokenizer.ggml.tokens");
  if (!tokens.ok()) return absl::OkStatus();
  constexpr std::pair<const char*, const char*> kTokens[] = {{"bos_token", "bos_token_id"},
                                                             {"eos_token", "eos_token_id"},
                                                             {"unk_token", "unknown_token_id"},
                                                             {"pad_token", "padding_token_id"}};
  for (const auto& [variable, key] : kTokens) {
    const absl::StatusOr<uint64_t> id = file.Uint(absl::StrCat("tokenizer.ggml.", key));
    if (!id.ok() || *id >= tokens->size()) continue;  // The tokenizer says what is wrong with it.
    source.special_tokens.emplace_back(variable, (*tokens)[*id]);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChatTemplateSource> ReadGgufChatTemplates(const GgufFile& file) {
  ChatTemplateSource source;
  if (file.Has(kGgufKey)) {
    VITRINE_ASSIGN_OR_RETURN(const std::string_view text, file.String(kGgufKey));
    source.templates.push_back({"default", std::string(text)});
  }
  if (file.Has("tokenizer.chat_templates")) {
    VITRINE_ASSIGN_OR_RETURN(const std::vector<std::string_view> names,
                             file.StringArray("tokenizer.chat_templates"));
    for (const std::string_view name : names) {
      VITRINE_ASSIGN_OR_RETURN(const std::string_view text,
                               file.String(absl::StrCat(kGgufKey, ".", std::string(name))));
      if (name == "default" && file.Has(kGgufKey)) continue;
      source.templates.push_back({std::string(name), std::string(text)});
    }
  }
  VITRINE_RETURN_IF_ERROR(AddGgufTokens(file, source));
  return source;
}

absl::StatusOr<ChatTemplateSource> ReadFolderChatTemplates(const std::string& folder) {
  ChatTemplateSource source;
  VITRINE_ASSIGN_OR_RETURN(std::string text,
                           ReadText(folder + "/chat_template.jinja", jinja::kMaxTemplateBytes));
  if (!text.empty()) source.templates.push_back({"default", std::move(text)});
  VITRINE_RETURN_IF_ERROR(AddNamedFiles(folder + "/additional_chat_templates", source));
  VITRINE_ASSIGN_OR_RETURN(const std::string json,
                           ReadText(folder + "/tokenizer_config.json", kMaxConfigBytes));
  if (json.empty()) return source;
  VITRINE_ASSIGN_OR_RETURN(const JsonValue config,
                           ParseJson(json, "tokenizer_config.json", kMaxConfigValues));
  const JsonValue* const value = config.Find("chat_template");
  if (value != nullptr && source.templates.empty()) {
    VITRINE_RETURN_IF_ERROR(AddConfigTemplates(*value, source));
  }
  AddSpecialTokens(config, source);
  return source;
}

}  // namespace vitrine
