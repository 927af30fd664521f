// Native answers as wire messages, the same for the stream and the unary call.
#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"
#include "server/request.h"
#include "server/token_sink.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::server {

v1::Accepted MakeAccepted(const ActiveRequest& request, bool with_prompt_ids);
void AddPromptLogprobs(std::span<const PromptToken> prompt, v1::Accepted& accepted);
v1::Token MakeToken(const AnswerToken& token);
v1::ChoiceFinished MakeChoiceFinished(const ChoiceEnd& end, const StopRules& stop);
v1::Done MakeDone(const AnswerEnd& end, int prompt_tokens);

// The status of a request that ended so; OK where every choice has a finish reason.
absl::Status StatusOf(const AnswerEnd& end);

// Unguessable: 128 random bits in hexadecimal.
std::string NewRequestId();

}  // namespace vitrine::server
