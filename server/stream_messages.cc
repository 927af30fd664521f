#include "server/stream_messages.h"

#include <utility>

#include "server/answer_messages.h"
#include "server/attention_messages.h"

namespace vitrine::server {

void StreamMessages::Accept(const ActiveRequest& request, bool with_prompt_ids) {
  *Add().mutable_accepted() = MakeAccepted(request, with_prompt_ids);
  awaits_prompt_ = request.request.output.prompt_logprobs >= 0;
}

void StreamMessages::AddPromptLogprobs(std::span<const PromptToken> prompt) {
  server::AddPromptLogprobs(prompt, *waiting_.front().event.mutable_accepted());
  awaits_prompt_ = false;
}

void StreamMessages::AddToken(const AnswerToken& token) {
  const bool appends =
      !waiting_.empty() && waiting_.back().event.has_tokens() && last_bytes_ < max_message_bytes_;
  v1::GenerateEvent& event = appends ? waiting_.back().event : Add();
  v1::Token& message = *event.mutable_tokens()->add_tokens();
  message = MakeToken(token);
  last_bytes_ += message.ByteSizeLong();
}

void StreamMessages::EndChoice(const ChoiceEnd& end, const StopRules& stop) {
  *Add().mutable_choice_finished() = MakeChoiceFinished(end, stop);
}

void StreamMessages::AddAttention(TraceChunk chunk, const ActiveRequest& request) {
  *Add().mutable_attention() = MakeAttentionChunk(chunk, request.id, request.request.trace->origin);
  // What waits for the end of the prefill must not stop the prefill.
  if (!awaits_prompt_) waiting_.back().hold = std::move(chunk.hold);
}

void StreamMessages::Finish(const AnswerEnd& end, const GenerationRequest& request) {
  awaits_prompt_ = false;
  for (const ChoiceEnd& choice : end.choices) {
    if (choice.ending != Ending::kFinished) EndChoice(choice, request.stop);
  }
  *Add().mutable_done() = MakeDone(end, static_cast<int>(request.prompt.size()));
}

std::optional<v1::GenerateEvent> StreamMessages::Take() {
  if (empty()) return std::nullopt;
  v1::GenerateEvent event = std::move(waiting_.front().event);
  waiting_.pop_front();
  event.set_sequence_number(next_sequence_number_++);
  return event;
}

v1::GenerateEvent& StreamMessages::Add() {
  last_bytes_ = 0;
  return waiting_.emplace_back().event;
}

}  // namespace vitrine::server
