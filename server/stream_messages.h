// The messages of one stream, from the answer's tokens to what is written next. Tokens that come
// while a write is in flight gather in one message; none is lost, doubled or reordered. No gRPC and
// no thread: its owner guards it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>

#include "server/request.h"
#include "server/token_sink.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::server {

class StreamMessages {
 public:
  // A message gets no further token once it has about this many bytes.
  explicit StreamMessages(size_t max_message_bytes) : max_message_bytes_(max_message_bytes) {}

  // With prompt_logprobs, no message can be taken before AddPromptLogprobs or Finish.
  void Accept(const ActiveRequest& request, bool with_prompt_ids);
  void AddPromptLogprobs(std::span<const PromptToken> prompt);
  void AddToken(const AnswerToken& token);
  void EndChoice(const ChoiceEnd& end, const StopRules& stop);
  void AddAttention(TraceChunk chunk, const ActiveRequest& request);
  // Of a request whose status is OK; choices that did not finish are ended first.
  void Finish(const AnswerEnd& end, const GenerationRequest& request);

  // The next message, with its sequence number; none where none can be taken.
  std::optional<v1::GenerateEvent> Take();
  bool empty() const { return waiting_.empty() || awaits_prompt_; }
  void Clear() { waiting_.clear(); }

 private:
  struct Message {
    v1::GenerateEvent event;
    CreditHold hold;  // Of attention.
  };

  v1::GenerateEvent& Add();

  size_t max_message_bytes_;
  std::deque<Message> waiting_;
  size_t last_bytes_ = 0;  // Rough size of the last one.
  bool awaits_prompt_ = false;
  uint64_t next_sequence_number_ = 0;
};

}  // namespace vitrine::server
