#include "server/inspection_messages.h"

#include <algorithm>
#include <chrono>

#include "server/answer_messages.h"

namespace vitrine::server {
namespace {

v1::RequestState StateOf(const RequestRecord::View& view) {
  if (!view.end.has_value()) {
    return view.has_started ? v1::REQUEST_STATE_RUNNING : v1::REQUEST_STATE_QUEUED;
  }
  switch (view.end->ending) {
    case Ending::kFinished:
    case Ending::kShutDown:
      return v1::REQUEST_STATE_FINISHED;
    case Ending::kCancelled:
      return v1::REQUEST_STATE_CANCELLED;
    case Ending::kExpired:
      return v1::REQUEST_STATE_EXPIRED;
    case Ending::kFailed:
    case Ending::kDeviceFailed:
      break;
  }
  return v1::REQUEST_STATE_FAILED;
}

// Counts and times so far.
v1::Done DoneOf(const RequestRecord& record, const RequestRecord::View& view) {
  AnswerEnd end = view.end.value_or(AnswerEnd());
  if (!view.end.has_value()) {
    for (const RequestRecord::Choice& choice : view.choices) {
      end.completion_tokens += static_cast<int>(choice.ids.size());
    }
  }
  return MakeDone(end, static_cast<int>(record.request().prompt.size()));
}

void FillTime(std::chrono::system_clock::time_point time, google::protobuf::Timestamp& message) {
  const auto since = time.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  message.set_seconds(seconds.count());
  message.set_nanos(static_cast<int32_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(since - seconds).count()));
}

void FillSampling(const SamplingParams& sampling, v1::SamplingOptions& message) {
  message.set_temperature(sampling.temperature);
  message.set_top_k(sampling.top_k);
  message.set_top_p(sampling.top_p);
  message.set_min_p(sampling.min_p);
  message.set_typical_p(sampling.typical_p);
  message.set_repetition_penalty(sampling.repetition_penalty);
  message.set_presence_penalty(sampling.presence_penalty);
  message.set_frequency_penalty(sampling.frequency_penalty);
  message.set_penalty_window(sampling.penalty_window);
  for (const TokenBias& bias : sampling.logit_bias) {
    v1::LogitBias& entry = *message.add_logit_bias();
    entry.set_token_id(static_cast<uint32_t>(bias.token_id));
    entry.set_bias(bias.bias);
  }
  message.mutable_allowed_token_ids()->Add(sampling.allowed.begin(), sampling.allowed.end());
  message.mutable_banned_token_ids()->Add(sampling.banned.begin(), sampling.banned.end());
  message.set_seed(sampling.seed);
}

void FillStop(const GenerationRequest& request, v1::StopOptions& message) {
  const StopRules& stop = request.stop;
  const auto prompt = static_cast<int>(request.prompt.size());
  message.set_max_tokens(static_cast<uint32_t>(stop.max_length - prompt));
  message.set_min_tokens(static_cast<uint32_t>(stop.min_tokens));
  for (const std::string& text : stop.stop_strings) message.add_stop_strings(text);
  message.set_include_stop_string(stop.include_stop_string);
  for (const TokenId id : stop.stop_token_ids) {
    message.add_stop_token_ids(static_cast<uint32_t>(id));
  }
  message.set_ignore_eos(stop.ignore_eos);
  if (request.time_limit_us == kNever) return;
  const int64_t limit_us = request.time_limit_us - request.arrival_us;
  message.mutable_time_limit()->set_seconds(limit_us / 1'000'000);
  message.mutable_time_limit()->set_nanos(static_cast<int32_t>(limit_us % 1'000'000) * 1000);
}

void FillPrompt(const GenerationRequest& request, v1::GetRequestResponse& response) {
  response.mutable_prompt_token_ids()->Add(request.prompt.begin(), request.prompt.end());
  if (!request.prompt_byte_offsets.empty()) {
    response.mutable_prompt_byte_offsets()->Add(request.prompt_byte_offsets.begin(),
                                                request.prompt_byte_offsets.end());
    response.add_prompt_byte_offsets(static_cast<uint32_t>(request.prompt_bytes));
  }
  for (const PromptRoleSpan& span : request.role_spans) {
    v1::RoleSpan& message = *response.add_role_spans();
    message.set_role(span.role);
    message.set_message(static_cast<uint32_t>(span.message));
    message.mutable_tokens()->set_begin(static_cast<uint32_t>(span.tokens.begin));
    message.mutable_tokens()->set_end(static_cast<uint32_t>(span.tokens.end));
  }
}

}  // namespace

v1::GetRequestResponse MakeRequestResponse(const RequestRecord& record, int64_t kept_for_us) {
  const RequestRecord::View view = record.Look();
  const GenerationRequest& request = record.request();
  v1::GetRequestResponse response;
  response.set_request_id(record.id());
  response.set_client_request_id(request.client_request_id);
  response.set_state(StateOf(view));
  FillPrompt(request, response);
  for (size_t i = 0; i < view.choices.size(); ++i) {
    const RequestRecord::Choice& choice = view.choices[i];
    v1::ChoiceRecord& message = *response.add_choices();
    message.set_index(static_cast<uint32_t>(i));
    message.mutable_token_ids()->Add(choice.ids.begin(), choice.ids.end());
    message.mutable_byte_offsets()->Add(choice.byte_offsets.begin(), choice.byte_offsets.end());
    message.set_reason(static_cast<v1::FinishReason>(choice.reason));
  }
  FillSampling(request.sampling, *response.mutable_sampling());
  FillStop(request, *response.mutable_stop());
  for (const HistoryEvent& event : view.history) {
    v1::TimelineEvent& message = *response.add_timeline();
    message.set_kind(static_cast<v1::TimelineEventKind>(event.kind));
    message.set_at_us(static_cast<uint64_t>(std::max<int64_t>(0, event.at_us)));
    message.set_tokens(static_cast<uint32_t>(event.tokens));
    message.set_batch_size(static_cast<uint32_t>(event.batch_size));
  }
  const v1::Done done = DoneOf(record, view);
  *response.mutable_usage() = done.usage();
  *response.mutable_timings() = done.timings();
  FillTime(record.arrived(), *response.mutable_arrived());
  if (kept_for_us != kNever) {
    response.mutable_kept_for()->set_seconds(kept_for_us / 1'000'000);
    response.mutable_kept_for()->set_nanos(static_cast<int32_t>(kept_for_us % 1'000'000) * 1000);
  }
  return response;
}

v1::RequestSummary MakeRequestSummary(const RequestRecord& record) {
  const RequestRecord::View view = record.Look();
  v1::RequestSummary summary;
  summary.set_request_id(record.id());
  summary.set_client_request_id(record.request().client_request_id);
  summary.set_state(StateOf(view));
  *summary.mutable_usage() = DoneOf(record, view).usage();
  FillTime(record.arrived(), *summary.mutable_arrived());
  return summary;
}

}  // namespace vitrine::server
