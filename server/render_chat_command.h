// render-chat: a conversation on stdin, the prompt on stdout, without loading weights.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace vitrine::server {

// `path` is a GGUF file, a Hugging Face folder, or a file with a template alone. `now` is what
// strftime_now prints, as 2025-03-14T15:09:26; empty: the local time.
absl::Status RenderChatCommand(const std::string& path, const std::string& now);

}  // namespace vitrine::server
