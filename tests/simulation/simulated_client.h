// One client of the simulation: reads its stream at its own pace and checks every message against
// the answer that it must get.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/detokenizer.h"
#include "server/answer_assembler.h"
#include "server/answer_messages.h"
#include "server/stream_messages.h"
#include "tests/server/fake_runner.h"

namespace vitrine::server {

class SimulatedClient final : public TokenSink {
 public:
  SimulatedClient(const FakeTokenizer& tokenizer, GenerationRequest request)
      : request_(std::move(request)),
        tokenizer_(tokenizer),
        messages_(kMaxMessageBytes),
        answers_(static_cast<size_t>(request_.num_choices)) {
    uint64_t history = 0;
    for (const TokenId token : request_.prompt) history = ExtendHistory(history, token);
    for (Answer& answer : answers_) answer.history = history;
  }

  void Accept(const ActiveRequest& request) {
    active_ = &request;
    messages_.Accept(request, false);
  }

  void OnPromptLogprobs(std::span<const PromptToken> prompt) override {
    if (end_ || has_prompt_) Fail("prompt log-probabilities at a wrong time");
    has_prompt_ = true;
    if (!is_dead) messages_.AddPromptLogprobs(prompt);
  }
  void OnToken(const AnswerToken& token) override {
    if (end_) Fail("a token after the end");
    if (is_dead) return;
    messages_.AddToken(token);
  }
  void OnChoiceEnd(const ChoiceEnd& end) override {
    if (end_) Fail("the end of a choice after the end");
    if (is_dead) return;
    messages_.EndChoice(end, request_.stop);
  }
  void OnAttention(TraceChunk chunk) override {
    if (end_) Fail("attention after the end");
    if (is_dead) return;
    messages_.AddAttention(std::move(chunk), *active_);
  }
  void OnEnd(const AnswerEnd& end) override {
    if (end_) Fail("a second end");
    end_ = end;
    if (is_dead) return;
    if (StatusOf(end).ok()) messages_.Finish(end, request_);
  }

  // Takes one message, as a completed write would.
  void ReadOne() {
    const std::optional<v1::GenerateEvent> event = messages_.Take();
    if (!event) return;
    if (event->sequence_number() != next_number_++) Fail("a gap in the sequence numbers");
    if (event->has_accepted() != (event->sequence_number() == 0)) Fail("Accepted is not first");
    if (has_done_) Fail("a message after Done");
    if (event->has_accepted() && has_prompt_) CheckPrompt(event->accepted());
    largest_message = std::max(largest_message, event->tokens().tokens_size());
    for (const v1::Token& token : event->tokens().tokens()) CheckToken(token);
    if (event->has_choice_finished()) {
      Answer& answer = answers_.at(event->choice_finished().choice());
      if (answer.finished) Fail("a second end of a choice");
      answer.text += event->choice_finished().tail_text();
      answer.finished = event->choice_finished();
    }
    if (event->has_attention()) CheckAttention(event->attention());
    if (event->has_done()) CheckDone(event->done());
  }
  bool has_unread() const { return !messages_.empty(); }

  bool has_end() const { return end_.has_value(); }
  const std::optional<AnswerEnd>& end() const { return end_; }
  const GenerationRequest& request() const { return request_; }
  int tokens_read() const {
    size_t tokens = 0;
    for (const Answer& answer : answers_) tokens += answer.ids.size();
    return static_cast<int>(tokens);
  }
  // Whether a choice ended while another went on.
  bool has_choice_left() const {
    return std::ranges::any_of(answers_, [](const Answer& a) { return a.finished.has_value(); }) &&
           std::ranges::any_of(answers_, [](const Answer& a) { return !a.finished; });
  }
  const std::string& failure() const { return failure_; }
  // After everything was read: a successful answer has told so.
  void CheckComplete() {
    if (is_dead || !end_) return;
    if (StatusOf(*end_).ok() != has_done_) Fail("Done does not agree with the status");
  }

  bool is_dead = false;  // Cancelled: reads nothing more.
  int largest_message = 0;

 private:
  static constexpr size_t kMaxMessageBytes = 2048;

  // One choice as read so far.
  struct Answer {
    uint64_t history = 0;
    std::vector<TokenId> ids;
    std::string text;
    std::optional<v1::ChoiceFinished> finished;
  };

  void Fail(const char* what) {
    if (failure_.empty()) failure_ = what;
  }

  void CheckToken(const v1::Token& token) {
    Answer& answer = answers_.at(token.choice());
    if (answer.finished) Fail("a token after the end of its choice");
    const SampleRow row = {
        .temperature = request_.sampling.temperature,
        .seed = request_.sampling.seed,
        .choice = token.choice(),
        .position = static_cast<int64_t>(request_.prompt.size() + answer.ids.size())};
    const auto id = static_cast<TokenId>(token.id());
    if (token.position() != row.position) Fail("a token lost or doubled");
    if (id != ExpectedToken(answer, row)) Fail("a wrong token");
    if (token.bytes() != tokenizer_.TokenBytes(id)) Fail("wrong bytes");
    if (token.has_logprob() != (request_.output.logprobs >= 0)) Fail("log-probabilities or not");
    if (token.has_logprob()) {
      CheckScore(token,
                 FakeLogprobs(answer.history, id, request_.output.logprobs,
                              request_.output.logprobs_are_processed, tokenizer_.vocabulary()));
    }
    if (FindInvalidUtf8(token.text()) != std::string_view::npos) Fail("text is not UTF-8");
    answer.history = ExtendHistory(answer.history, id);
    answer.ids.push_back(id);
    answer.text += token.text();
  }

  // Rows come once, after the token that they led to, and hold what the fake model gave them.
  void CheckAttention(const v1::AttentionChunk& chunk) {
    if (trace_end_) Fail("attention after the end of its trace");
    if (chunk.sequence_number() != next_chunk_++) Fail("a gap in the chunks");
    if (chunk.has_trace_end()) {
      trace_end_ = chunk.trace_end();
      if (trace_end_->rows() != rows_.size()) Fail("a row lost or doubled");
      if (trace_end_->bytes() != attention_bytes_) Fail("the bytes of the trace are wrong");
      return;
    }
    attention_bytes_ += chunk.values().data().size();
    for (int i = 0; i < chunk.rows_size(); ++i) CheckRow(chunk, i);
  }

  void CheckRow(const v1::AttentionChunk& chunk, int index) {
    const v1::AttentionRow& row = chunk.rows(index);
    if (!rows_.emplace(row.choice(), row.query_position()).second) Fail("a row twice");
    const Answer& answer = answers_.at(row.choice());
    std::vector<TokenId> tokens = request_.prompt;
    tokens.insert(tokens.end(), answer.ids.begin(), answer.ids.end());
    const size_t length = row.query_position() + 1;
    if (length > tokens.size()) return Fail("a row of a token that is not there");
    if (length > request_.prompt.size() && length == tokens.size() && !answer.finished) {
      return Fail("a row before the token that it led to");
    }
    uint64_t history = 0;
    for (size_t i = 0; i < length; ++i) history = ExtendHistory(history, tokens[i]);
    // [layers, heads, rows, statistics]; the first is the log-sum-exp.
    float log_sum_exp = 0;
    std::memcpy(&log_sum_exp,
                chunk.values().data().data() + sizeof(float) * static_cast<size_t>(8 * index),
                sizeof(float));
    if (log_sum_exp != FakeLogSumExp(history, 0, 0)) Fail("a row of another history");
  }

  // Of Token and PromptLogprob.
  template <class Message>
  void CheckScore(const Message& message, const TokenLogprobs& expected) {
    bool is_right = message.logprob() == expected.logprob &&
                    static_cast<int32_t>(message.rank()) == expected.rank &&
                    message.top_size() == expected.top_count;
    for (int i = 0; is_right && i < message.top_size(); ++i) {
      const auto index = static_cast<size_t>(i);
      is_right = static_cast<TokenId>(message.top(i).id()) == expected.top_ids[index] &&
                 message.top(i).bytes() == tokenizer_.TokenBytes(expected.top_ids[index]) &&
                 message.top(i).logprob() == expected.top_logprobs[index];
    }
    if (!is_right) Fail("log-probabilities of another token");
  }

  void CheckPrompt(const v1::Accepted& accepted) {
    if (static_cast<size_t>(accepted.prompt_logprobs_size()) != request_.prompt.size()) {
      return Fail("not all of the prompt is scored");
    }
    uint64_t history = 0;
    for (int i = 0; i < accepted.prompt_logprobs_size(); ++i) {
      const v1::PromptLogprob& message = accepted.prompt_logprobs(i);
      const TokenId token = request_.prompt[static_cast<size_t>(i)];
      if (static_cast<TokenId>(message.id()) != token) Fail("a wrong prompt token");
      if (i == 0 && message.has_logprob()) Fail("nothing precedes the first token");
      if (i > 0) {
        CheckScore(message, FakeLogprobs(history, token, request_.output.prompt_logprobs, false,
                                         tokenizer_.vocabulary()));
      }
      history = ExtendHistory(history, token);
    }
  }

  // Counts what the penalties see anew for every token.
  TokenId ExpectedToken(const Answer& answer, const SampleRow& row) const {
    const SamplingParams& sampling = request_.sampling;
    std::vector<TokenId> tokens = request_.prompt;
    tokens.insert(tokens.end(), answer.ids.begin(), answer.ids.end());
    const size_t window =
        sampling.penalty_window < 0
            ? tokens.size()
            : std::min(tokens.size(), static_cast<size_t>(sampling.penalty_window));
    std::map<TokenId, int> counts;
    for (size_t i = tokens.size() - window; i < tokens.size(); ++i) {
      const bool is_generated = i >= request_.prompt.size();
      if (is_generated || sampling.repetition_penalty != 1.0f) counts[tokens[i]] += is_generated;
    }
    std::vector<SeenToken> seen;
    if (sampling.has_penalties()) {
      for (const auto& [token, count] : counts) seen.push_back({token, count});
    }
    LogitAdjustment change = {.biases = sampling.logit_bias,
                              .allowed = sampling.allowed,
                              .banned = sampling.banned,
                              .seen = seen,
                              .repetition_penalty = sampling.repetition_penalty,
                              .presence_penalty = sampling.presence_penalty,
                              .frequency_penalty = sampling.frequency_penalty};
    if (static_cast<int>(answer.ids.size()) < request_.stop.min_tokens) {
      change.withheld = request_.stop.withheld;
    }
    return DrawAdjusted(answer.history, row, change, tokenizer_.vocabulary());
  }

  // Offset of the first byte at which a stop string may begin.
  size_t SearchBegin(const Answer& answer) const {
    const auto count = std::min(answer.ids.size(), static_cast<size_t>(request_.stop.min_tokens));
    return tokenizer_.Decode(std::span(answer.ids).first(count)).size();
  }

  void CheckDone(const v1::Done& done) {
    has_done_ = true;
    if ((request_.trace != nullptr) != trace_end_.has_value()) Fail("a trace without an end");
    if (done.usage().attention_bytes() != attention_bytes_) Fail("the attention bytes are wrong");
    TokenHash hash;
    for (const Answer& answer : answers_) {
      for (const TokenId id : answer.ids) hash.Add(id);
      CheckText(answer);
    }
    if (done.usage().completion_tokens() != static_cast<uint32_t>(tokens_read())) {
      Fail("the count is wrong");
    }
    if (tokens_read() > 0 && has_prompt_ != (request_.output.prompt_logprobs >= 0)) {
      Fail("tokens without the prompt's log-probabilities");
    }
    if (done.token_hash() != hash.value()) Fail("the hash is wrong");
    if (done.usage().cached_prompt_tokens() >= request_.prompt.size()) Fail("too many cached");
  }

  void CheckText(const Answer& answer) {
    if (!answer.finished) return Fail("a choice without an end");
    const v1::FinishReason reason = answer.finished->reason();
    const bool may_be_short =
        reason == v1::FINISH_REASON_TIME_LIMIT || reason == v1::FINISH_REASON_SHUTDOWN;
    if (!may_be_short && static_cast<int>(answer.ids.size()) < request_.stop.min_tokens) {
      Fail("fewer than min_tokens");
    }
    std::string bytes = tokenizer_.Decode(answer.ids);
    if (answer.finished->reason() == v1::FINISH_REASON_STOP_STRING) {
      const std::string& stop = answer.finished->matched_stop_string();
      const size_t at = bytes.find(stop, SearchBegin(answer));
      if (at == std::string::npos) return Fail("the stop string is not there");
      bytes.resize(at + (request_.stop.include_stop_string ? stop.size() : 0));
    } else {
      for (const std::string& stop : request_.stop.stop_strings) {
        if (bytes.find(stop, SearchBegin(answer)) != std::string::npos)
          Fail("a stop string was missed");
      }
    }
    Utf8Stream decoder;
    std::string expected = decoder.Append(bytes);
    expected += decoder.Flush();
    if (answer.text != expected) Fail("the text is not that of the ids");
  }

  const GenerationRequest request_;
  const FakeTokenizer& tokenizer_;
  StreamMessages messages_;
  std::optional<AnswerEnd> end_;
  uint64_t next_number_ = 0;
  const ActiveRequest* active_ = nullptr;
  uint64_t next_chunk_ = 0;
  std::set<std::pair<uint32_t, uint32_t>> rows_;  // Choice and position.
  uint64_t attention_bytes_ = 0;
  std::optional<v1::TraceEnd> trace_end_;
  std::vector<Answer> answers_;  // [num_choices]
  bool has_done_ = false;
  bool has_prompt_ = false;
  std::string failure_;
};

}  // namespace vitrine::server
