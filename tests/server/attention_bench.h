// The server without gRPC and threads around the fake model, for tests of traces: one request or
// several run to their ends, and what their consumers got is kept.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/attention_messages.h"
#include "server/engine.h"
#include "server/request_archive.h"
#include "server/validate.h"
#include "server/validate_replay.h"
#include "tests/server/fake_runner.h"

namespace vitrine::server {

inline constexpr int kTraceLayers = 3;
inline constexpr int kTraceHeads = 4;
inline constexpr int kTraceContext = 96;

// What the consumer of one request got.
class TraceReader final : public TokenSink {
 public:
  void OnPromptLogprobs(std::span<const PromptToken> /*prompt*/) override {}
  void OnToken(const AnswerToken& token) override {
    if (token.choice == 0) ids.push_back(token.id);
    choice_ids[static_cast<size_t>(token.choice)].push_back(token.id);
  }
  void OnAttention(TraceChunk chunk) override {
    const bool is_end = chunk.end.has_value();
    EXPECT_FALSE(has_trace_end()) << "a chunk behind the end";
    largest = std::max(largest, chunk.bytes());
    bytes += chunk.bytes();
    if (keeps_credit) holds.push_back(std::move(chunk.hold));
    TraceOrigin origin;
    chunks.push_back(MakeAttentionChunk(chunk, "id", origin));
    EXPECT_EQ(chunks.back().sequence_number(), chunks.size() - 1);
    if (is_end) tokens_at_end = ids.size();
  }
  void OnEnd(const AnswerEnd& answer_end) override { end = answer_end; }

  bool has_trace_end() const { return !chunks.empty() && chunks.back().has_trace_end(); }
  const v1::TraceEnd& trace_end() const { return chunks.back().trace_end(); }

  std::vector<TokenId> ids;  // Of choice 0.
  std::array<std::vector<TokenId>, kMaxChoices> choice_ids;
  std::vector<v1::AttentionChunk> chunks;
  std::vector<CreditHold> holds;
  bool keeps_credit = false;  // A reader that takes nothing.
  size_t largest = 0;
  uint64_t bytes = 0;
  size_t tokens_at_end = 0;
  std::optional<AnswerEnd> end;
};

// Numbers of F32 tensor data.
inline std::vector<float> Floats(const v1::Tensor& tensor) {
  std::vector<float> numbers(tensor.data().size() / sizeof(float));
  std::memcpy(numbers.data(), tensor.data().data(), tensor.data().size());
  return numbers;
}

// A request for token ids 1, 2, ... with a seed of its own, greedy.
inline v1::GenerateRequest TraceRequest(int prompt, int max_tokens, int first_token = 1) {
  v1::GenerateRequest request;
  for (int i = 0; i < prompt; ++i) {
    request.mutable_token_ids()->add_ids(static_cast<uint32_t>((first_token + i) % 250));
  }
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stop()->set_max_tokens(static_cast<uint32_t>(max_tokens));
  request.mutable_stop()->set_ignore_eos(true);
  return request;
}

class SettableClock final : public Clock {
 public:
  int64_t NowMicros() const override { return now_us; }
  int64_t now_us = 0;
};

class TraceBench {
 public:
  struct Options {
    int blocks = 64;
    int running = 8;
    int chunk = 16;
    int traced_rows = 12;
    int layers = kTraceLayers;
    int heads = kTraceHeads;
    int context = kTraceContext;
    bool optimistic = false;
    int64_t buffer_bytes = int64_t{4} << 20;
    int64_t max_bytes = int64_t{1} << 30;
  };

  TraceBench() : TraceBench(Options()) {}
  // `model_runner`: computes instead of the fake model.
  explicit TraceBench(const Options& options, Runner* model_runner = nullptr)
      : archive_({.retention_us = 1'000'000, .max_bytes = int64_t{1} << 20}, clock_) {
    const RunnerLimits limits = {.max_step_rows = 32,
                                 .max_step_sequences = options.running,
                                 .num_blocks = options.blocks,
                                 .context_length = options.context,
                                 .vocabulary = tokenizer_.vocabulary(),
                                 .max_traced_rows = options.traced_rows,
                                 .num_layers = options.layers,
                                 .num_heads = options.heads};
    runner_ = std::make_unique<FakeRunner>(limits);
    model_ = {.name = "fake",
              .tokenizer = &tokenizer_,
              .vocabulary = tokenizer_.vocabulary(),
              .context_length = options.context,
              .kv_tokens = int64_t{options.blocks} * kKvBlockTokens,
              .longest_token = LongestToken(tokenizer_),
              .inspection_bytes = options.max_bytes,
              .max_reduced_pairs = 64,
              .num_layers = options.layers,
              .num_heads = options.heads};
    limits_.max_running_sequences = options.running;
    queue_ = std::make_unique<RequestQueue>(
        QueueLimits{.max_requests = 100, .max_prompt_tokens = 100'000}, counters_);
    delivery_ =
        std::make_unique<Delivery>(tokenizer_, counters_, DeliveryOptions{.archive = &archive_});
    EngineOptions engine = {.scheduler = {.max_running_sequences = options.running,
                                          .max_step_tokens = 32,
                                          .prefill_chunk_tokens = options.chunk,
                                          .optimistic_admission = options.optimistic,
                                          .max_traced_rows = options.traced_rows},
                            .trace_buffer_bytes = options.buffer_bytes,
                            .hash_key = {1, 2}};
    Runner& runner = model_runner == nullptr ? *runner_ : *model_runner;
    engine_ = std::make_unique<Engine>(engine, runner, *queue_, *delivery_, clock_);
  }

  absl::StatusOr<GenerationRequest> Validate(const v1::GenerateRequest& message) const {
    return ValidateGenerate(message, model_, limits_);
  }

  // Queues a valid request.
  std::shared_ptr<TraceReader> Add(const v1::GenerateRequest& message) {
    auto reader = std::make_shared<TraceReader>();
    absl::StatusOr<GenerationRequest> request = Validate(message);
    EXPECT_TRUE(request.ok()) << request.status() << message.DebugString();
    if (!request.ok()) return reader;
    Queue(*std::move(request), reader, /*is_kept=*/true);
    return reader;
  }

  // What PlanReplay makes of the request with index `index`, computed now.
  std::shared_ptr<TraceReader> Replay(size_t index, const v1::AttentionSpec& spec) {
    auto reader = std::make_shared<TraceReader>();
    auto requests = PlanReplay(spec, *active_[index]->record, model_);
    EXPECT_TRUE(requests.ok()) << requests.status();
    if (!requests.ok() || requests->empty()) return reader;
    EXPECT_EQ(requests->size(), 1u);
    Queue(std::move(requests->front()), reader, /*is_kept=*/false);
    RunAll();
    return reader;
  }

  bool Turn() {
    const bool has_worked = engine_->Turn();
    delivery_->Deliver();
    return has_worked;
  }
  void RunAll() {
    for (int turn = 0; turn < 10'000 && Turn(); ++turn) {
    }
  }
  std::shared_ptr<TraceReader> Run(const v1::GenerateRequest& message) {
    auto reader = Add(message);
    RunAll();
    EXPECT_TRUE(reader->end.has_value());
    return reader;
  }

  FakeRunner& runner() { return *runner_; }
  const ServedModel& model() const { return model_; }
  const Engine& engine() const { return *engine_; }
  ActiveRequest& active(size_t index) { return *active_[index]; }
  RequestArchive& archive() { return archive_; }
  SettableClock& clock() { return clock_; }

 private:
  void Queue(GenerationRequest request, const std::shared_ptr<TraceReader>& reader, bool is_kept) {
    const std::string id = "id" + std::to_string(active_.size());
    auto active = std::make_shared<ActiveRequest>(id, std::move(request), reader);
    if (is_kept) active->record = archive_.Open(id, active->request);
    EXPECT_TRUE(queue_->Push(active, 0).ok());
    active_.push_back(active);
  }

  FakeTokenizer tokenizer_;
  SettableClock clock_;
  RequestArchive archive_;
  RequestCounters counters_;
  RequestLimits limits_;
  ServedModel model_;
  std::unique_ptr<FakeRunner> runner_;
  std::unique_ptr<RequestQueue> queue_;
  std::unique_ptr<Delivery> delivery_;
  std::unique_ptr<Engine> engine_;
  std::vector<std::shared_ptr<ActiveRequest>> active_;
};

// The history that the fake model stores per position of a sequence.
inline std::vector<uint64_t> Histories(const std::vector<TokenId>& tokens) {
  std::vector<uint64_t> histories;
  uint64_t history = 0;
  for (const TokenId token : tokens) {
    history = ExtendHistory(history, token);
    histories.push_back(history);
  }
  return histories;
}

// Prompt of TraceRequest, then the answer.
inline std::vector<TokenId> AllTokens(int prompt, const std::vector<TokenId>& answer,
                                      int first_token = 1) {
  std::vector<TokenId> tokens;
  for (int i = 0; i < prompt; ++i) tokens.push_back((first_token + i) % 250);
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  return tokens;
}

// DENSE F32 chunks put together: numbers by (choice, layer, head, query, key). A number that comes
// twice is an error.
using DenseCells = std::map<std::array<int, 5>, float>;
inline DenseCells CollectDense(const std::vector<v1::AttentionChunk>& chunks) {
  DenseCells cells;
  for (const v1::AttentionChunk& chunk : chunks) {
    if (chunk.output() != v1::ATTENTION_OUTPUT_KIND_DENSE) continue;
    const std::vector<float> numbers = Floats(chunk.values());
    size_t i = 0;
    for (const uint32_t layer : chunk.layers()) {
      for (const uint32_t head : chunk.heads()) {
        for (const v1::AttentionRow& row : chunk.rows()) {
          for (uint32_t key = 0; key < chunk.key_count(); ++key) {
            const std::array<int, 5> at = {
                static_cast<int>(row.choice()), static_cast<int>(layer), static_cast<int>(head),
                static_cast<int>(row.query_position()), static_cast<int>(chunk.key_start() + key)};
            EXPECT_TRUE(cells.emplace(at, numbers.at(i)).second) << "sent twice";
            ++i;
          }
        }
      }
    }
    EXPECT_EQ(i, numbers.size());
  }
  return cells;
}

}  // namespace vitrine::server
