#include "server/request_log.h"

#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace vitrine::server {
namespace {

const char* EndName(const ChoiceEnd& end) {
  switch (end.ending) {
    case Ending::kCancelled:
      return "cancelled";
    case Ending::kExpired:
      return "expired";
    case Ending::kShutDown:
      return "shutdown";
    case Ending::kFailed:
      return "failed";
    case Ending::kDeviceFailed:
      return "device_failed";
    case Ending::kFinished:
      break;
  }
  switch (end.reason) {
    case FinishReason::kUnspecified:
      break;
    case FinishReason::kEos:
      return "eos";
    case FinishReason::kStopToken:
      return "stop_token";
    case FinishReason::kStopString:
      return "stop_string";
    case FinishReason::kMaxTokens:
      return "max_tokens";
    case FinishReason::kContextFull:
      return "context_full";
    case FinishReason::kTimeLimit:
      return "time_limit";
    case FinishReason::kShutdown:
      return "shutdown";
  }
  return "finished";
}

}  // namespace

void LogRequestEnd(const ActiveRequest& request, const AnswerEnd& end) {
  const Timeline& t = end.timeline;
  // Printable ASCII, as validated: escaping these two keeps the field in its quotes.
  std::string client_id;
  for (const char c : request.request.client_request_id) {
    if (c == '"' || c == '\\') client_id += '\\';
    client_id += c;
  }
  std::string ends;  // One per choice.
  for (const ChoiceEnd& choice : end.choices) {
    absl::StrAppend(&ends, ends.empty() ? "" : ",", EndName(choice));
  }
  const std::string line = absl::StrFormat(
      "request id=%s caller=%s client_id=\"%s\" end=%s prompt_tokens=%d cached_prompt_tokens=%d "
      "completion_tokens=%d queue_us=%d prefill_us=%d decode_us=%d prefill_chunks=%d steps=%d "
      "preemptions=%d "
      "mean_batch_size=%.2f\n",
      request.id, request.request.caller, client_id, ends, request.request.prompt.size(),
      t.cached_prompt_tokens, end.completion_tokens, t.queue_us, t.prefill_us, t.decode_us,
      t.prefill_chunks, t.steps, t.preemptions, t.mean_batch_size());
  // One write, so that lines of several threads do not mix.
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace vitrine::server
