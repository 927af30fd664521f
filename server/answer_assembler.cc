#include "server/answer_assembler.h"

#include <limits>
#include <utility>

namespace vitrine::server {

AnswerAssembler::AnswerAssembler(const Tokenizer& tokenizer, const GenerationRequest& request,
                                 int choice)
    : tokenizer_(tokenizer),
      request_(request),
      choice_(choice),
      matcher_(request.stop.stop_strings) {}

bool AnswerAssembler::Append(TokenId id, TokenSink& sink) {
  if (matcher_.matched() >= 0) return false;
  if (request_.return_token_ids_only) {
    Emit(id, {}, sink);
    return true;
  }
  const std::string_view bytes = tokenizer_.TokenBytes(id);
  waiting_.push_back({.id = id, .begin = bytes_seen_});
  if (static_cast<int>(ids_.size()) < request_.stop.min_tokens) {
    // No stop string may begin in it.
    Take(std::string(bytes));
    EmitBefore(std::numeric_limits<int64_t>::max(), sink);
    return true;
  }
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

ChoiceEnd AnswerAssembler::Finish(const ChoiceEnding& ending, TokenSink& sink) {
  if (matcher_.matched() < 0) {
    Take(matcher_.Flush());
    EmitBefore(matcher_.matched() >= 0 ? matcher_.match_end() : std::numeric_limits<int64_t>::max(),
               sink);
  }
  ChoiceEnd answer = {.choice = choice_,
                      .ending = ending.ending,
                      .reason = ending.reason,
                      .stop_token = ending.stop_token};
  // What the engine met after the match did not happen, but for a client that is gone.
  if (matcher_.matched() >= 0 && ending.ending != Ending::kCancelled &&
      ending.ending != Ending::kExpired) {
    answer.ending = Ending::kFinished;
    answer.reason = FinishReason::kStopString;
    answer.stop_token = -1;
    answer.stop_string = matcher_.matched();
  }
  answer.tail_bytes = std::move(unsent_bytes_);
  answer.tail_text = std::move(ready_text_) + utf8_.Flush();
  answer.completion_tokens = static_cast<int>(ids_.size());
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
  AnswerToken token = {.choice = choice_,
                       .position = static_cast<int64_t>(request_.prompt.size() + ids_.size()),
                       .id = id,
                       .text = std::move(text)};
  if (!request_.return_token_ids_only) token.bytes = tokenizer_.TokenBytes(id);
  ids_.push_back(id);
  sink.OnToken(token);
}

}  // namespace vitrine::server
