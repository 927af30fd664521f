// The consumer of one answer. Delivery calls it, from one thread at a time: OnToken for each token
// in order, then OnEnd once. Implementations do not block.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/batch.h"
#include "server/request.h"

namespace vitrine::server {

// One token of the answer. `bytes` and `text` are empty when only ids were asked for.
struct AnswerToken {
  int choice = 0;
  int64_t position = 0;  // In the sequence, prompt included.
  TokenId id = 0;
  std::string_view bytes = {};  // Exact; belongs to the tokenizer.
  std::string text = {};        // Valid UTF-8 that this token released.
};

struct AnswerEnd {
  Ending ending = Ending::kFinished;
  FinishReason reason = FinishReason::kUnspecified;
  TokenId stop_token = -1;      // With kEos and kStopToken.
  int stop_string = -1;         // With kStopString: index in StopRules::stop_strings.
  std::string tail_text = {};   // Valid UTF-8 that was held back and belongs to the answer.
  std::string tail_bytes = {};  // What tail_text stands for.
  int completion_tokens = 0;    // Tokens handed to OnToken.
  uint64_t token_hash = 0;      // Of their ids; FNV-1a, see answer_assembler.h.
  int64_t answer_bytes = 0;     // Bytes of the answer, without the stop string unless kept.
  Timeline timeline = {};
};

class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void OnToken(const AnswerToken& token) = 0;
  virtual void OnEnd(const AnswerEnd& end) = 0;
};

}  // namespace vitrine::server
