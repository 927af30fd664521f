// The answers to one request, choice by choice, and how their ends add up to the request's.
// Delivery thread only.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "model/tokenizer.h"
#include "server/answer_assembler.h"
#include "server/request.h"
#include "server/token_sink.h"

namespace vitrine::server {

class AnswerSet {
 public:
  // Both must outlive the object.
  AnswerSet(const Tokenizer& tokenizer, const GenerationRequest& request);

  // The next token of `choice`. False: a stop string has matched, and that choice is complete.
  bool Append(int choice, TokenId id, std::unique_ptr<TokenLogprobs> logprobs, TokenSink& sink) {
    return at(choice).Append(id, std::move(logprobs), sink);
  }

  // The prompt's log-probabilities, see AnswerAssembler.
  void ScorePrompt(std::span<const TokenLogprobs> logprobs, TokenSink& sink) {
    at(0).ScorePrompt(logprobs, sink);
  }

  // The end of `choice` as the engine saw it; as its consumer sees it, it is returned. A choice
  // that finished is told to the sink at once: those cut short may yet turn out to be an error.
  const ChoiceEnd& EndChoice(int choice, const ChoiceEnding& ending, TokenSink& sink);

  // Tokens of `choice` that the sink has got.
  const std::vector<TokenId>& ids(int choice) const {
    return assemblers_[static_cast<size_t>(choice)].ids();
  }

  bool is_complete() const { return open_choices_ == 0; }

  // Of all choices; once complete.
  AnswerEnd TakeEnd(const Timeline& timeline);

 private:
  AnswerAssembler& at(int choice) { return assemblers_[static_cast<size_t>(choice)]; }

  std::vector<AnswerAssembler> assemblers_;  // [num_choices]
  int open_choices_;
  AnswerEnd end_;
};

}  // namespace vitrine::server
