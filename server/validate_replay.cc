#include "server/validate_replay.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/status.h"
#include "server/validate_attention.h"

namespace vitrine::server {
namespace {

// Rows of a choice that were computed: one behind each token that was fed back. The last token of
// an answer was, if it led to a token that ended the answer and is no part of it.
int EndRow(int prompt, const RequestRecord::Choice& choice) {
  const auto tokens = static_cast<int>(choice.ids.size());
  const bool has_fed_back_all =
      choice.reason == FinishReason::kEos || choice.reason == FinishReason::kStopToken;
  return std::max(prompt, prompt + tokens - (has_fed_back_all ? 0 : 1));
}

GenerationRequest RequestFor(const RequestRecord& record, const RequestRecord::Choice& choice,
                             TraceSpec trace) {
  const GenerationRequest& kept = record.request();
  const auto prompt = static_cast<int>(kept.prompt.size());
  const int length = std::max(prompt, trace.end_row());
  GenerationRequest request;
  request.prompt = kept.prompt;
  request.prompt.insert(request.prompt.end(), choice.ids.begin(),
                        choice.ids.begin() + (length - prompt));
  request.stop.max_length = length;
  request.priority = kReplayPriority;
  request.cache_salt = kept.cache_salt;
  request.caller = kept.caller;
  for (const RowCertificate& certificate : choice.certificates) {
    if (certificate.position < length) request.certificates.push_back(certificate);
  }
  request.trace = std::make_shared<const TraceSpec>(std::move(trace));
  return request;
}

}  // namespace

absl::StatusOr<std::vector<GenerationRequest>> PlanReplay(const v1::AttentionSpec& spec,
                                                          const RequestRecord& record,
                                                          const ServedModel& model) {
  const GenerationRequest& kept = record.request();
  const RequestRecord::View view = record.Look();
  const auto prompt = static_cast<int>(kept.prompt.size());
  std::vector<GenerationRequest> requests;
  uint64_t bytes = 0;
  const auto cap = static_cast<uint64_t>(model.inspection_bytes);
  const uint64_t allowed = spec.has_max_bytes() ? std::min(spec.max_bytes(), cap) : cap;
  for (size_t index = 0; index < view.choices.size(); ++index) {
    const RequestRecord::Choice& choice = view.choices[index];
    const TraceSubject subject = {.prompt_tokens = prompt,
                                  .end_row = EndRow(prompt, choice),
                                  .byte_offsets = kept.prompt_byte_offsets,
                                  .prompt_bytes = kept.prompt_bytes,
                                  .role_spans = kept.role_spans,
                                  .is_replay = true};
    VITRINE_ASSIGN_OR_RETURN(
        TraceSpec trace, ValidateAttention(spec, "spec", subject, model, model.inspection_bytes));
    trace.origin.choice = static_cast<int>(index);
    // Rows of the prompt belong to all choices and come once.
    if (index > 0)
      std::erase_if(trace.rows, [&](KeyRange& rows) {
        rows.begin = std::max(rows.begin, prompt);
        return rows.begin >= rows.end;
      });
    if (trace.rows.empty()) continue;
    bytes += trace.AnswerBytes();
    if (bytes > allowed) {
      return absl::ResourceExhaustedError(absl::StrCat("spec: the answer would have at least ",
                                                       bytes, " bytes, ", allowed, " are allowed"));
    }
    requests.push_back(RequestFor(record, choice, std::move(trace)));
  }
  return requests;
}

}  // namespace vitrine::server
