// Queue, engine and delivery without threads and gRPC: every turn is the test's, so that a run is
// the same each time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "model/runner.h"
#include "model/tokenizer.h"
#include "server/clock.h"
#include "server/delivery.h"
#include "server/engine.h"
#include "server/metrics.h"
#include "server/request_queue.h"
#include "server/token_sink.h"

namespace vitrine::server {

// The answers to one request.
class Recorder final : public TokenSink {
 public:
  void OnPromptLogprobs(std::span<const PromptToken> /*prompt*/) override {}
  void OnToken(const AnswerToken& token) override { ids_[token.choice].push_back(token.id); }
  void OnEnd(const AnswerEnd& end) override { end_ = end; }

  const std::vector<TokenId>& ids(int choice = 0) { return ids_[choice]; }
  const std::optional<AnswerEnd>& end() const { return end_; }

 private:
  std::map<int, std::vector<TokenId>> ids_;
  std::optional<AnswerEnd> end_;
};

class EngineHarness {
 public:
  // `runner` and `tokenizer` must outlive the harness.
  EngineHarness(const EngineOptions& options, Runner& runner, const Tokenizer& tokenizer)
      : delivery_(tokenizer, counters_, {}), engine_(options, runner, queue_, delivery_, clock_) {}

  void Push(GenerationRequest request, std::shared_ptr<TokenSink> sink) {
    request.arrival_us = clock_.NowMicros();
    const absl::Status status =
        queue_.Push(std::make_shared<ActiveRequest>("test", std::move(request), std::move(sink)),
                    clock_.NowMicros());
    VITRINE_CHECK(status.ok());
  }
  std::shared_ptr<Recorder> Send(GenerationRequest request) {
    auto recorder = std::make_shared<Recorder>();
    Push(std::move(request), recorder);
    return recorder;
  }

  void RunAll() {
    while (counters_.live() > 0) {
      engine_.Turn();
      delivery_.Deliver();
    }
  }

  Engine& engine() { return engine_; }
  Delivery& delivery() { return delivery_; }
  const RequestCounters& counters() const { return counters_; }

 private:
  SteadyClock clock_;
  RequestCounters counters_;
  RequestQueue queue_{{.max_requests = 1 << 16, .max_prompt_tokens = int64_t{1} << 32}, counters_};
  Delivery delivery_;
  Engine engine_;
};

}  // namespace vitrine::server
