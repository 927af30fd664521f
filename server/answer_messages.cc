#include "server/answer_messages.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_format.h"

namespace vitrine::server {

namespace {

void AddAlternatives(const TokenScore& score,
                     google::protobuf::RepeatedPtrField<v1::TokenLogprob>& top) {
  for (size_t i = 0; i < static_cast<size_t>(score.logprobs->top_count); ++i) {
    v1::TokenLogprob& one = *top.Add();
    one.set_id(static_cast<uint32_t>(score.logprobs->top_ids[i]));
    one.set_logprob(score.logprobs->top_logprobs[i]);
    if (i >= score.top_bytes.size()) continue;
    one.set_bytes(score.top_bytes[i].data(), score.top_bytes[i].size());
  }
}

}  // namespace

v1::Accepted MakeAccepted(const ActiveRequest& request, bool with_prompt_ids) {
  v1::Accepted accepted;
  accepted.set_request_id(request.id);
  accepted.set_prompt_token_count(static_cast<uint32_t>(request.request.prompt.size()));
  accepted.set_seed(request.request.sampling.seed);
  accepted.set_client_request_id(request.request.client_request_id);
  if (with_prompt_ids) {
    accepted.mutable_prompt_token_ids()->Add(request.request.prompt.begin(),
                                             request.request.prompt.end());
  }
  return accepted;
}

void AddPromptLogprobs(std::span<const PromptToken> prompt, v1::Accepted& accepted) {
  for (const PromptToken& token : prompt) {
    v1::PromptLogprob& message = *accepted.add_prompt_logprobs();
    message.set_id(static_cast<uint32_t>(token.id));
    if (token.score.logprobs == nullptr) continue;
    message.set_logprob(token.score.logprobs->logprob);
    message.set_rank(static_cast<uint32_t>(token.score.logprobs->rank));
    AddAlternatives(token.score, *message.mutable_top());
  }
}

v1::Token MakeToken(const AnswerToken& token) {
  v1::Token message;
  message.set_choice(static_cast<uint32_t>(token.choice));
  message.set_position(static_cast<uint32_t>(token.position));
  message.set_id(static_cast<uint32_t>(token.id));
  message.set_bytes(token.bytes.data(), token.bytes.size());
  message.set_text(token.text);
  if (token.score.logprobs == nullptr) return message;
  message.set_logprob(token.score.logprobs->logprob);
  message.set_rank(static_cast<uint32_t>(token.score.logprobs->rank));
  AddAlternatives(token.score, *message.mutable_top());
  return message;
}

v1::ChoiceFinished MakeChoiceFinished(const ChoiceEnd& end, const StopRules& stop) {
  v1::ChoiceFinished message;
  message.set_choice(static_cast<uint32_t>(end.choice));
  message.set_reason(static_cast<v1::FinishReason>(end.reason));
  if (end.stop_token >= 0) message.set_matched_stop_token(static_cast<uint32_t>(end.stop_token));
  if (end.stop_string >= 0) {
    message.set_matched_stop_string(stop.stop_strings[static_cast<size_t>(end.stop_string)]);
  }
  message.set_tail_text(end.tail_text);
  message.set_tail_bytes(end.tail_bytes);
  return message;
}

v1::Done MakeDone(const AnswerEnd& end, int prompt_tokens) {
  const Timeline& timeline = end.timeline;
  v1::Done done;
  v1::Usage& usage = *done.mutable_usage();
  usage.set_prompt_tokens(static_cast<uint32_t>(prompt_tokens));
  usage.set_cached_prompt_tokens(static_cast<uint32_t>(timeline.cached_prompt_tokens));
  usage.set_completion_tokens(static_cast<uint32_t>(end.completion_tokens));
  usage.set_attention_bytes(end.attention_bytes);
  v1::Timings& timings = *done.mutable_timings();
  timings.set_queue_us(static_cast<uint64_t>(std::max<int64_t>(0, timeline.queue_us)));
  timings.set_prefill_us(static_cast<uint64_t>(timeline.prefill_us));
  timings.set_decode_us(static_cast<uint64_t>(timeline.decode_us));
  timings.set_prefill_chunks(static_cast<uint32_t>(timeline.prefill_chunks));
  timings.set_preemptions(static_cast<uint32_t>(timeline.preemptions));
  timings.set_mean_batch_size(static_cast<float>(timeline.mean_batch_size()));
  timings.set_longest_step_us(static_cast<uint64_t>(timeline.longest_step_us));
  done.set_token_hash(end.token_hash);
  return done;
}

absl::Status StatusOf(const AnswerEnd& end) {
  switch (end.ending) {
    case Ending::kFinished:
      return absl::OkStatus();
    case Ending::kShutDown:
      // Nothing was answered yet, so another server can take the whole request.
      if (end.completion_tokens == 0) {
        return absl::UnavailableError("the server stopped before the answer began");
      }
      return absl::OkStatus();
    case Ending::kCancelled:
      return absl::CancelledError("cancelled by the client");
    case Ending::kExpired:
      return absl::DeadlineExceededError("the deadline passed");
    case Ending::kDeviceFailed:
      return absl::UnavailableError(kDeviceFailedText);
    case Ending::kFailed:
      break;
  }
  return absl::InternalError("the model gave no finite logits");
}

std::string NewRequestId() {
  std::random_device entropy;
  std::string id = "req-";
  for (int i = 0; i < 4; ++i) absl::StrAppendFormat(&id, "%08x", entropy());
  return id;
}

}  // namespace vitrine::server
