// Chats on the wire: from messages to the tokens of a prompt, by the model's own template.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "model/chat_template.h"
#include "model/tokenizer.h"
#include "server/served_model.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::server {

struct ChatPrompt {
  RenderedChat rendered;
  Encoding encoding;
};

// FAILED_PRECONDITION: the model has no template, or one that cannot be used. INVALID_ARGUMENT
// names the field; also when the template refuses the conversation, or when the prompt has more
// than `max_tokens`. RESOURCE_EXHAUSTED: rendering costs more than it may.
//
// The template is the whole prompt, as in transformers: no begin token is added to it. Control
// tokens come from what the template itself wrote, never from the text of a message.
absl::StatusOr<ChatPrompt> EncodeChat(const v1::Chat& chat, const ServedModel& model,
                                      int64_t max_tokens);

// Positions of the tokens that hold a byte of a message's content.
struct ContentTokens {
  int message = 0;
  uint32_t begin = 0;
  uint32_t end = 0;
};
// One per message whose content appears in the prompt, in order.
std::vector<ContentTokens> FindContents(const ChatPrompt& prompt);

void FillRenderChat(const v1::Chat& chat, ChatPrompt prompt, v1::RenderChatResponse& response);

}  // namespace vitrine::server
