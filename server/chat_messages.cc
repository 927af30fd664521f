#include "server/chat_messages.h"

#include <algorithm>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/detokenizer.h"
#include "model/jinja/errors.h"
#include "model/json.h"
#include "model/status.h"
#include "server/field_error.h"

namespace vitrine::server {
namespace {

constexpr size_t kMaxJsonValues = 100'000;  // In all fields of a chat together.

// Empty messages are two bytes each on the wire and hundreds in memory.
constexpr int kMaxMessages = 16'384;

// What a request may set beside the messages: switches and facts that published templates ask for.
// Nothing here is a name that the server or the model's files set.
constexpr std::string_view kVariables[] = {"builtin_tools",
                                           "citation_mode",
                                           "citations",
                                           "clear_thinking",
                                           "controls",
                                           "current_date",
                                           "custom_tools",
                                           "date",
                                           "date_string",
                                           "datetime",
                                           "developer_prompt",
                                           "documents",
                                           "enable_thinking",
                                           "functions",
                                           "json_mode",
                                           "json_schema",
                                           "keep_thinking",
                                           "language",
                                           "model_identity",
                                           "preserve_thinking",
                                           "python_tools",
                                           "reasoning",
                                           "reasoning_effort",
                                           "reasoning_mode",
                                           "response_format",
                                           "safety_mode",
                                           "skip_think",
                                           "thinking",
                                           "thinking_budget",
                                           "think_render_option",
                                           "today",
                                           "tool_choice",
                                           "tools_in_user_message",
                                           "truncation_side",
                                           "xml_tools"};

std::string Indexed(std::string_view list, int index, std::string_view field) {
  return absl::StrCat(std::string(list), "[", index, "].", std::string(field));
}

absl::Status CheckUtf8(std::string_view field, std::string_view text) {
  const size_t bad = FindInvalidUtf8(text);
  if (bad == std::string_view::npos) return absl::OkStatus();
  return FieldError(field, std::string(absl::StrCat("invalid UTF-8 at byte ", bad)));
}

// The JSON of a field; null when it is empty. `values_left` is how many values it may have, and
// what it leaves of them.
absl::StatusOr<JsonValue> ReadJson(std::string_view field, const std::string& text,
                                   size_t& values_left) {
  if (text.empty()) return JsonValue();
  VITRINE_RETURN_IF_ERROR(CheckUtf8(field, text));
  absl::StatusOr<JsonValue> value = ParseExactJson(text, "JSON", values_left);
  // The parser quotes what it stumbles over, which is the client's text.
  if (absl::IsResourceExhausted(value.status())) {
    return FieldError(field, std::string(absl::StrCat("the JSON of a chat must hold at most ",
                                                      kMaxJsonValues, " values in all")));
  }
  if (absl::IsOutOfRange(value.status())) {
    return FieldError(field, "holds an integer below -2^63 or above 2^63 - 1");
  }
  if (!value.ok()) return FieldError(field, "is not JSON, or nests deeper than it may");
  values_left -= value->CountValues();
  return value;
}

absl::StatusOr<JsonValue> ReadArray(std::string_view field, const std::string& text,
                                    size_t& values_left) {
  VITRINE_ASSIGN_OR_RETURN(JsonValue value, ReadJson(field, text, values_left));
  if (value.is_null() && text.empty()) return value;
  if (value.AsArray() == nullptr) return FieldError(field, "must be a JSON array");
  return value;
}

absl::StatusOr<JsonValue> ReadVariables(const std::string& text, size_t& values_left) {
  constexpr std::string_view kField = "chat.template_variables";
  VITRINE_ASSIGN_OR_RETURN(JsonValue value, ReadJson(kField, text, values_left));
  if (value.is_null() && text.empty()) return value;
  const JsonValue::Object* const object = value.AsObject();
  if (object == nullptr) return FieldError(kField, "must be a JSON object");
  for (const auto& [name, member] : *object) {
    if (std::find(std::begin(kVariables), std::end(kVariables), name) == std::end(kVariables)) {
      return FieldError(kField, "has a name that is not allowed");
    }
  }
  return value;
}

absl::StatusOr<JsonValue> ReadMessage(const v1::ChatMessage& message, int index,
                                      size_t& values_left) {
  const auto field = [&](std::string_view name) { return Indexed("chat.messages", index, name); };
  if (message.role().empty()) return FieldError(field("role"), "must not be empty");
  VITRINE_RETURN_IF_ERROR(CheckUtf8(field("role"), message.role()));
  VITRINE_RETURN_IF_ERROR(CheckUtf8(field("content"), message.content()));
  VITRINE_RETURN_IF_ERROR(CheckUtf8(field("name"), message.name()));
  JsonValue::Object object;
  object.emplace_back("role", JsonValue(message.role()));
  object.emplace_back("content", JsonValue(message.content()));
  if (!message.name().empty()) object.emplace_back("name", JsonValue(message.name()));
  VITRINE_ASSIGN_OR_RETURN(JsonValue calls,
                           ReadArray(field("tool_calls"), message.tool_calls(), values_left));
  if (!calls.is_null()) object.emplace_back("tool_calls", std::move(calls));
  return JsonValue(std::move(object));
}

absl::StatusOr<Conversation> ReadConversation(const v1::Chat& chat) {
  if (chat.messages().empty()) return FieldError("chat.messages", "must hold at least 1 message");
  if (chat.messages_size() > kMaxMessages) {
    return FieldError("chat.messages",
                      std::string(absl::StrCat("must hold at most ", kMaxMessages,
                                               " messages, holds ", chat.messages_size())));
  }
  Conversation conversation;
  JsonValue::Array messages;
  size_t values_left = kMaxJsonValues;
  for (int i = 0; i < chat.messages_size(); ++i) {
    VITRINE_ASSIGN_OR_RETURN(JsonValue message, ReadMessage(chat.messages(i), i, values_left));
    messages.push_back(std::move(message));
  }
  conversation.messages = JsonValue(std::move(messages));
  VITRINE_ASSIGN_OR_RETURN(conversation.tools, ReadArray("chat.tools", chat.tools(), values_left));
  VITRINE_ASSIGN_OR_RETURN(conversation.variables,
                           ReadVariables(chat.template_variables(), values_left));
  conversation.add_generation_prompt =
      !chat.has_add_generation_prompt() || chat.add_generation_prompt();
  return conversation;
}

absl::Status RenderingError(const absl::Status& status) {
  const std::string message(status.message());
  if (absl::IsResourceExhausted(status)) {
    return absl::ResourceExhaustedError("chat: rendering it costs too much: " + message);
  }
  return FieldError("chat", jinja::RaisedText(status)
                                ? "the template refuses the conversation: " + message
                                : "the template cannot render the conversation: " + message);
}

}  // namespace

std::tm LocalTime() {
  const std::time_t seconds = std::time(nullptr);
  std::tm local = {};
  localtime_r(&seconds, &local);
  return local;
}

absl::StatusOr<ChatPrompt> EncodeChat(const v1::Chat& chat, const ServedModel& model,
                                      int64_t max_tokens) {
  if (model.chat_template == nullptr) {
    return absl::FailedPreconditionError("chat: " + model.no_chat_reason);
  }
  VITRINE_ASSIGN_OR_RETURN(const Conversation conversation, ReadConversation(chat));
  ChatPrompt prompt;
  absl::StatusOr<RenderedChat> rendered =
      model.chat_template->Render(conversation, model.local_time());
  if (!rendered.ok()) return RenderingError(rendered.status());
  prompt.rendered = *std::move(rendered);
  const std::string& text = prompt.rendered.text;
  const int64_t least = static_cast<int64_t>(text.size()) / model.longest_token;
  if (least > max_tokens) {
    return FieldError("chat", std::string(absl::StrCat("has at least ", least, " tokens, at most ",
                                                       max_tokens, " can be used")));
  }
  VITRINE_ASSIGN_OR_RETURN(
      prompt.encoding,
      model.tokenizer->Encode(
          text, {.parse_special = true, .add_bos = false, .plain_ranges = prompt.rendered.plain}));
  return prompt;
}

std::vector<ContentTokens> FindContents(const ChatPrompt& prompt) {
  const std::vector<uint32_t>& offsets = prompt.encoding.byte_offsets;
  std::vector<ContentTokens> contents;
  for (size_t i = 0; i < prompt.rendered.contents.size(); ++i) {
    const ByteRange& bytes = prompt.rendered.contents[i];
    if (bytes.begin == bytes.end) continue;
    // The token that holds the first byte begins at or before it.
    const auto first = std::upper_bound(offsets.begin(), offsets.end(), bytes.begin);
    const auto last = std::lower_bound(offsets.begin(), offsets.end(), bytes.end);
    contents.push_back({static_cast<int>(i),
                        static_cast<uint32_t>(std::max<ptrdiff_t>(first - offsets.begin() - 1, 0)),
                        static_cast<uint32_t>(last - offsets.begin())});
  }
  return contents;
}

void FillRenderChat(const v1::Chat& chat, ChatPrompt prompt, v1::RenderChatResponse& response) {
  for (const ContentTokens& content : FindContents(prompt)) {
    v1::RoleSpan& span = *response.add_role_spans();
    span.set_role(chat.messages(content.message).role());
    span.set_message(static_cast<uint32_t>(content.message));
    span.mutable_tokens()->set_begin(content.begin);
    span.mutable_tokens()->set_end(content.end);
  }
  response.mutable_token_ids()->Add(prompt.encoding.ids.begin(), prompt.encoding.ids.end());
  response.set_prompt(std::move(prompt.rendered.text));
}

}  // namespace vitrine::server
