// Where model files keep chat templates.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "model/chat_template.h"
#include "model/gguf.h"

namespace vitrine {

// tokenizer.chat_template, the named ones that tokenizer.chat_templates lists, and the texts of the
// begin, end, padding and unknown tokens. No template is no error.
absl::StatusOr<ChatTemplateSource> ReadGgufChatTemplates(const GgufFile& file);

// A Hugging Face folder: chat_template.jinja and additional_chat_templates/NAME.jinja, else
// chat_template of tokenizer_config.json, a text or a list of {name, template}; special tokens from
// tokenizer_config.json. No template is no error.
absl::StatusOr<ChatTemplateSource> ReadFolderChatTemplates(const std::string& folder);

}  // namespace vitrine
