#include "server/answer_assembler.h"

#include <limits>
#include <utility>

namespace vitrine::server {

AnswerAssembler::AnswerAssembler(const Tokenizer& tokenizer, const GenerationRequest& request)
    : tokenizer_(tokenizer), request_(request), matcher_(request.stop.stop_strings) {}

bool AnswerAssembler::Append(TokenId id, TokenSink& sink) {
  if (matcher_.matched() >= 0) return false;
  if (request_.return_token_ids_only) {
    Emit(id, {}, sink);
    return true;
  }
  const std::string_view bytes = tokenizer_.TokenBytes(id);
  waiting_.push_back({.id = id, .begin = bytes_seen_});
  bytes_seen_ += static_cast<int64_t>(bytes.size());
  Take(matcher_.Append(bytes));
  if (matcher_.matched() >= 0) {
    EmitBefore(matcher_.match_end(), sink);
    return false;
  }
  EmitBefore(matcher_.candidate_end() >= 0 ? matcher_.candidate_end()
                                           : std::numeric_limits<int64_t>::max(),
             sink);
  return true;
}

AnswerEnd AnswerAssembler::Finish(const RequestEnd& end, TokenSink& sink) {
  if (matcher_.matched() < 0) {
    Take(matcher_.Flush());
    EmitBefore(matcher_.matched() >= 0 ? matcher_.match_end() : std::numeric_limits<int64_t>::max(),
               sink);
  }
  AnswerEnd answer = {.ending = end.ending,
                      .reason = end.reason,
                      .stop_token = end.stop_token,
                      .timeline = end.timeline};
  // What the engine met after the match did not happen, but for a client that is gone.
  if (matcher_.matched() >= 0 && end.ending != Ending::kCancelled &&
      end.ending != Ending::kExpired) {
    answer.ending = Ending::kFinished;
    answer.reason = FinishReason::kStopString;
    answer.stop_token = -1;
    answer.stop_string = matcher_.matched();
  }
  answer.tail_bytes = std::move(unsent_bytes_);
  answer.tail_text = std::move(ready_text_) + utf8_.Flush();
  answer.completion_tokens = completion_tokens_;
  answer.token_hash = hash_.value();
  answer.answer_bytes = bytes_released_;
  return answer;
}

void AnswerAssembler::Take(std::string released) {
  if (matcher_.matched() >= 0 && request_.stop.include_stop_string) {
    released += request_.stop.stop_strings[static_cast<size_t>(matcher_.matched())];
  }
  bytes_released_ += static_cast<int64_t>(released.size());
  ready_text_ += utf8_.Append(released);
  unsent_bytes_ += released;
}

void AnswerAssembler::EmitBefore(int64_t limit, TokenSink& sink) {
  size_t count = 0;
  while (count < waiting_.size() && waiting_[count].begin < limit) ++count;
  for (size_t i = 0; i < count; ++i) {
    const bool is_newest = i + 1 == count;
    Emit(waiting_[i].id, is_newest ? std::exchange(ready_text_, {}) : std::string(), sink);
  }
  if (count > 0) unsent_bytes_.erase(0, unsent_bytes_.size() - utf8_.held_bytes());
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
}

void AnswerAssembler::Emit(TokenId id, std::string text, TokenSink& sink) {
  AnswerToken token = {
      .position = static_cast<int64_t>(request_.prompt.size()) + completion_tokens_,
      .id = id,
      .text = std::move(text)};
  if (!request_.return_token_ids_only) token.bytes = tokenizer_.TokenBytes(id);
  ++completion_tokens_;
  hash_.Add(id);
  sink.OnToken(token);
}

}  // namespace vitrine::server
