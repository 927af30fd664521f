// Turns the ids of one choice into what its consumer sees: exact bytes and whole-character text
// with beginnings of stop strings held back. Delivery thread only.
//
// Streamed text, unary text and the decoded ids agree byte for byte for any chunking: text is a
// function of the ids alone. A token that begins at or after the end of a stop string does not
// exist for the consumer; while a match is complete but may still be overtaken by a longer or
// earlier one, such tokens wait. No stop string begins in the first min_tokens tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/batch.h"
#include "model/detokenizer.h"
#include "model/tokenizer.h"
#include "server/request.h"
#include "server/stop_matcher.h"
#include "server/token_sink.h"

namespace vitrine::server {

// 64-bit FNV-1a over the little-endian 32-bit ids of the tokens delivered, choice after choice.
class TokenHash {
 public:
  void Add(TokenId id) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash_ ^= (static_cast<uint32_t>(id) >> shift) & 0xff;
      hash_ *= 0x100000001b3u;
    }
  }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

class AnswerAssembler {
 public:
  // Both must outlive the assembler.
  AnswerAssembler(const Tokenizer& tokenizer, const GenerationRequest& request, int choice);

  // The next token; `logprobs` may be null. False: a stop string has matched, now or earlier, and
  // the answer is complete.
  bool Append(TokenId id, std::unique_ptr<TokenLogprobs> logprobs, TokenSink& sink);

  // The prompt's log-probabilities, of all its tokens but the first. Before Append.
  void ScorePrompt(std::span<const TokenLogprobs> logprobs, TokenSink& sink) const;

  // The end of the answer as the engine saw it. Tokens that waited go to the sink; the end as its
  // consumer shall see it is returned.
  ChoiceEnd Finish(const ChoiceEnding& ending, TokenSink& sink);

  // Of the tokens handed to the sink.
  const std::vector<TokenId>& ids() const { return ids_; }

 private:
  struct Waiting {
    TokenId id;
    std::unique_ptr<TokenLogprobs> logprobs;
    int64_t begin;  // Offset of its first byte in what the matcher was given.
  };

  void Take(std::string released);
  void EmitBefore(int64_t limit, TokenSink& sink);
  void Emit(const Waiting& waiting, std::string text, TokenSink& sink);
  std::string_view BytesOf(TokenId id) const;
  TokenScore ScoreOf(const TokenLogprobs* logprobs) const;

  const Tokenizer& tokenizer_;
  const GenerationRequest& request_;
  int choice_;
  StopMatcher matcher_;
  Utf8Stream utf8_;
  std::vector<Waiting> waiting_;  // Not yet shown to the sink, in order.
  std::string ready_text_;        // Certain, to go out with the next token.
  std::string unsent_bytes_;      // What ready_text_ and the bytes that utf8_ holds stand for.
  int64_t bytes_seen_ = 0;        // By the matcher.
  int64_t bytes_released_ = 0;
  std::vector<TokenId> ids_;
};

}  // namespace vitrine::server
