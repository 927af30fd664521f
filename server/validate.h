// The only way from a wire message to native values: every field is honoured or refused by name.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer.h"
#include "server/chat_messages.h"
#include "server/options.h"
#include "server/request.h"
#include "server/served_model.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::server {

// INVALID_ARGUMENT names the field, NOT_FOUND an unknown model, FAILED_PRECONDITION a feature that
// is off, RESOURCE_EXHAUSTED (without a retry hint) what can never fit, with both numbers. The
// times of the result are relative: the caller adds the arrival.
absl::StatusOr<GenerationRequest> ValidateGenerate(const v1::GenerateRequest& message,
                                                   const ServedModel& model,
                                                   const RequestLimits& limits);

// `text_bytes` becomes the size of the text, or of the prompt that a chat renders to.
absl::StatusOr<Encoding> ValidateTokenize(const v1::TokenizeRequest& message,
                                          const ServedModel& model, size_t& text_bytes);

absl::StatusOr<ChatPrompt> ValidateRenderChat(const v1::RenderChatRequest& message,
                                              const ServedModel& model);

// The bytes of the ids.
absl::StatusOr<std::string> ValidateDetokenize(const v1::DetokenizeRequest& message,
                                               const ServedModel& model);

// Fields of GenerateRequest that are supported, by full name.
std::vector<std::string> SupportedRequestFields();

}  // namespace vitrine::server
