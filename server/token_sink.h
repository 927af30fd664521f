// The consumer of the answers to one request. Delivery calls it, from one thread at a time: per
// choice OnToken for each token in order, then OnChoiceEnd once if the choice finished; OnEnd once
// after all that. Implementations do not block.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/batch.h"
#include "model/token_logprobs.h"
#include "server/request.h"
#include "server/trace_chunk.h"

namespace vitrine::server {

// Log-probabilities of one token.
struct TokenScore {
  const TokenLogprobs* logprobs = nullptr;       // Null: not asked for.
  std::vector<std::string_view> top_bytes = {};  // Of its alternatives; empty: only ids are wanted.
};

// One token of the prompt; the first has no score.
struct PromptToken {
  TokenId id = 0;
  TokenScore score = {};  // Valid during OnPromptLogprobs.
};

// One token of an answer. `bytes` and `text` are empty when only ids were asked for.
struct AnswerToken {
  int choice = 0;
  int64_t position = 0;  // In the sequence, prompt included.
  TokenId id = 0;
  std::string_view bytes = {};  // Exact; belongs to the tokenizer.
  std::string text = {};        // Valid UTF-8 that this token released.
  TokenScore score = {};        // Valid during OnToken.
};

// The end of one answer.
struct ChoiceEnd {
  int choice = 0;
  Ending ending = Ending::kFinished;
  FinishReason reason = FinishReason::kUnspecified;
  TokenId stop_token = -1;      // With kEos and kStopToken.
  int stop_string = -1;         // With kStopString: index in StopRules::stop_strings.
  std::string tail_text = {};   // Valid UTF-8 that was held back and belongs to the answer.
  std::string tail_bytes = {};  // What tail_text stands for.
  int completion_tokens = 0;    // Tokens handed to OnToken.
  int64_t answer_bytes = 0;     // Bytes of the answer, without the stop string unless kept.
};

// The end of a request.
struct AnswerEnd {
  Ending ending = Ending::kFinished;
  std::vector<ChoiceEnd> choices = {};  // [num_choices]
  int completion_tokens = 0;            // Of all choices.
  uint64_t token_hash = 0;              // Of their ids, choice after choice; see TokenHash.
  uint64_t attention_bytes = 0;         // Handed to OnAttention.
  Timeline timeline = {};
};

class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // Once, before OnToken, where prompt_logprobs were asked for and the answer got so far.
  virtual void OnPromptLogprobs(std::span<const PromptToken> prompt) = 0;
  virtual void OnToken(const AnswerToken& token) = 0;
  virtual void OnChoiceEnd(const ChoiceEnd& /*end*/) {}
  // Chunks of the trace, for requests that ask for one; the last one ends it, before OnEnd. A row
  // comes after the token that it led to.
  virtual void OnAttention(TraceChunk /*chunk*/) {}
  virtual void OnEnd(const AnswerEnd& end) = 0;
};

}  // namespace vitrine::server
