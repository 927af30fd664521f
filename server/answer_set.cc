#include "server/answer_set.h"

#include <algorithm>
#include <utility>

namespace vitrine::server {

AnswerSet::AnswerSet(const Tokenizer& tokenizer, const GenerationRequest& request)
    : open_choices_(request.num_choices) {
  const auto choices = static_cast<size_t>(request.num_choices);
  end_.choices.resize(choices);
  assemblers_.reserve(choices);
  for (int choice = 0; choice < request.num_choices; ++choice) {
    assemblers_.emplace_back(tokenizer, request, choice);
  }
}

const ChoiceEnd& AnswerSet::EndChoice(int choice, const ChoiceEnding& ending, TokenSink& sink) {
  ChoiceEnd& end = end_.choices[static_cast<size_t>(choice)];
  end = at(choice).Finish(ending, sink);
  --open_choices_;
  end_.ending = std::max(end_.ending, end.ending);
  end_.completion_tokens += end.completion_tokens;
  if (end.ending == Ending::kFinished) sink.OnChoiceEnd(end);
  return end;
}

AnswerEnd AnswerSet::TakeEnd(const Timeline& timeline) {
  TokenHash hash;
  for (const AnswerAssembler& assembler : assemblers_) {
    for (const TokenId id : assembler.ids()) hash.Add(id);
  }
  end_.token_hash = hash.value();
  end_.timeline = timeline;
  return std::move(end_);
}

}  // namespace vitrine::server
