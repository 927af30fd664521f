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

bool AnswerAssembler::Append(TokenId id, std::unique_ptr<TokenLogprobs> logprobs, TokenSink& sink) {
  if (matcher_.matched() >= 0) return false;
  Waiting newest = {.id = id, .logprobs = std::move(logprobs), .begin = bytes_seen_};
  if (request_.output.return_token_ids_only) {
    Emit(newest, {}, sink);
    return true;
  }
  const std::string_view bytes = BytesOf(id);
  waiting_.push_back(std::move(newest));
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

void AnswerAssembler::ScorePrompt(std::span<const TokenLogprobs> logprobs, TokenSink& sink) const {
  std::vector<PromptToken> tokens;
  tokens.reserve(request_.prompt.size());
  for (size_t i = 0; i < request_.prompt.size(); ++i) {
    tokens.push_back(
        {.id = request_.prompt[i], .score = ScoreOf(i == 0 ? nullptr : &logprobs[i - 1])});
  }
  sink.OnPromptLogprobs(tokens);
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
    Emit(waiting_[i], is_newest ? std::exchange(ready_text_, {}) : std::string(), sink);
  }
  if (count > 0) unsent_bytes_.erase(0, unsent_bytes_.size() - utf8_.held_bytes());
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
}

void AnswerAssembler::Emit(const Waiting& waiting, std::string text, TokenSink& sink) {
  AnswerToken token = {.choice = choice_,
                       .position = static_cast<int64_t>(request_.prompt.size() + ids_.size()),
                       .id = waiting.id,
                       .text = std::move(text),
                       .score = ScoreOf(waiting.logprobs.get())};
  if (!request_.output.return_token_ids_only) token.bytes = BytesOf(waiting.id);
  ids_.push_back(waiting.id);
  sink.OnToken(token);
}

// Models may have more rows of logits than their tokenizer has tokens.
std::string_view AnswerAssembler::BytesOf(TokenId id) const {
  return id < tokenizer_.vocabulary() ? tokenizer_.TokenBytes(id) : std::string_view();
}

TokenScore AnswerAssembler::ScoreOf(const TokenLogprobs* logprobs) const {
  TokenScore score = {.logprobs = logprobs};
  if (logprobs == nullptr || request_.output.return_token_ids_only) return score;
  for (int32_t i = 0; i < logprobs->top_count; ++i) {
    score.top_bytes.push_back(BytesOf(logprobs->top_ids[static_cast<size_t>(i)]));
  }
  return score;
}

}  // namespace vitrine::server
