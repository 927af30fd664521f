#include "server/render_chat_command.h"

#include <sys/stat.h>

#include <cstdio>
#include <ctime>
#include <iostream>
#include <iterator>
#include <utility>

#include "absl/time/time.h"
#include "model/chat_template.h"
#include "model/chat_template_files.h"
#include "model/gguf.h"
#include "model/jinja/errors.h"
#include "model/json.h"
#include "model/mapped_file.h"
#include "model/status.h"
#include "server/served_model.h"

namespace vitrine::server {
namespace {

constexpr size_t kMaxValues = 10'000'000;
constexpr std::string_view kGgufMagic = "GGUF";

absl::StatusOr<ChatTemplateSource> ReadSource(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return ReadFolderChatTemplates(path);
  }
  VITRINE_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  if (file.bytes().starts_with(kGgufMagic)) {
    VITRINE_ASSIGN_OR_RETURN(const auto gguf, GgufFile::Open(path));
    return ReadGgufChatTemplates(*gguf);
  }
  ChatTemplateSource source;
  source.templates.push_back({"default", std::string(file.bytes())});
  return source;
}

absl::StatusOr<std::tm> ReadTime(const std::string& text) {
  if (text.empty()) {
    return LocalTime();
  }
  absl::Time time;
  std::string error;
  if (!absl::ParseTime("%Y-%m-%dT%H:%M:%S", text, &time, &error)) {
    return absl::InvalidArgumentError("--now must be a time such as 2025-03-14T15:09:26");
  }
  return absl::ToTM(time, absl::UTCTimeZone());
}

absl::StatusOr<Conversation> ReadConversation(const std::string& text) {
  VITRINE_ASSIGN_OR_RETURN(const JsonValue json, ParseExactJson(text, "stdin", kMaxValues));
  const JsonValue::Object* const object = json.AsObject();
  if (object == nullptr) return absl::InvalidArgumentError("stdin: expected a JSON object");
  Conversation conversation;
  for (const auto& [name, value] : *object) {
    if (name == "messages" && value.AsArray() != nullptr) {
      conversation.messages = value;
    } else if (name == "tools" && (value.AsArray() != nullptr || value.is_null())) {
      conversation.tools = value;
    } else if (name == "variables" && (value.AsObject() != nullptr || value.is_null())) {
      conversation.variables = value;
    } else if (name == "messages" || name == "tools" || name == "variables") {
      return absl::InvalidArgumentError("stdin: " + name + " cannot be " +
                                        std::string(value.kind()));
    } else {
      return absl::InvalidArgumentError(
          "stdin: an object of messages, tools and variables, and nothing else");
    }
  }
  if (conversation.messages.is_null()) {
    return absl::InvalidArgumentError("stdin: messages is missing");
  }
  return conversation;
}

}  // namespace

absl::Status RenderChatCommand(const std::string& path, const std::string& now) {
  VITRINE_ASSIGN_OR_RETURN(const std::tm time, ReadTime(now));
  VITRINE_ASSIGN_OR_RETURN(const ChatTemplateSource source, ReadSource(path));
  VITRINE_ASSIGN_OR_RETURN(const ChatTemplate chat_template, ChatTemplate::Parse(source));
  const std::string text{std::istreambuf_iterator<char>(std::cin),
                         std::istreambuf_iterator<char>()};
  VITRINE_ASSIGN_OR_RETURN(const Conversation conversation, ReadConversation(text));
  const absl::StatusOr<RenderedChat> chat = chat_template.Render(conversation, time);
  if (!chat.ok()) {
    // Whoever runs this has the conversation at hand: nothing needs to be left out.
    return absl::Status(
        chat.status().code(),
        jinja::RaisedText(chat.status()).value_or(std::string(chat.status().message())));
  }
  std::fwrite(chat->text.data(), 1, chat->text.size(), stdout);
  return absl::OkStatus();
}

}  // namespace vitrine::server
