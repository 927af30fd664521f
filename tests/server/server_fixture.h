// The whole server but for the model, for tests over real sockets and an in-process channel.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "model/detokenizer.h"
#include "server/answer_assembler.h"
#include "server/grpc_server.h"
#include "tests/server/fake_runner.h"

namespace vitrine::server {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

inline constexpr int kContext = 512;
inline constexpr int kBlocks = 256;
inline constexpr int kFakeLayers = 2;
inline constexpr int kFakeHeads = 4;

inline ServerOptions TestOptions() {
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  options.scheduler = {
      .max_running_sequences = 16, .max_step_tokens = 64, .prefill_chunk_tokens = 32};
  options.queue = {.max_requests = 64, .max_prompt_tokens = 1 << 16};
  options.drain_us = 10'000'000;
  options.stall_us = 5'000'000;
  return options;
}

// Waits, at most ten seconds, until `holds`.
inline bool Eventually(const std::function<bool()>& holds) {
  const auto deadline = steady_clock::now() + std::chrono::seconds(10);
  while (!holds()) {
    if (steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

struct Streamed {
  std::vector<v1::GenerateEvent> events;
  std::vector<v1::Token> tokens;
  grpc::Status status;

  std::string text() const {
    std::string text;
    for (const v1::Token& token : tokens) text += token.text();
    for (const v1::GenerateEvent& event : events) {
      if (event.has_choice_finished()) text += event.choice_finished().tail_text();
    }
    return text;
  }
  std::vector<TokenId> ids(uint32_t choice = 0) const {
    std::vector<TokenId> ids;
    for (const v1::Token& token : tokens) {
      if (token.choice() == choice) ids.push_back(static_cast<TokenId>(token.id()));
    }
    return ids;
  }
  v1::FinishReason reason() const {
    return events.at(events.size() - 2).choice_finished().reason();
  }
  const v1::Done& done() const { return events.back().done(); }
};

class GrpcServerTest : public testing::Test {
 protected:
  void StartServer(const ServerOptions& options = TestOptions(), int blocks = kBlocks,
                   int context = kContext) {
    options_ = options;
    options_.load.max_step_rows = options_.scheduler.max_step_tokens;
    options_.request.max_running_sequences = options_.scheduler.max_running_sequences;
    if (options.allow_inspection) options_.scheduler.max_traced_rows = 64;
    runner_ = std::make_unique<FakeRunner>(
        RunnerLimits{.max_step_rows = options_.scheduler.max_step_tokens,
                     .max_step_sequences = options_.scheduler.max_running_sequences,
                     .num_blocks = blocks,
                     .context_length = context,
                     .vocabulary = tokenizer_.vocabulary(),
                     .max_traced_rows = options_.scheduler.max_traced_rows,
                     .num_layers = kFakeLayers,
                     .num_heads = kFakeHeads});
    runner_->before_step = [this](const Batch& batch) {
      while (is_frozen_ || tokens_allowed_ == 0) std::this_thread::sleep_for(milliseconds(1));
      if (tokens_allowed_ > 0) --tokens_allowed_;
      std::this_thread::sleep_for(std::chrono::microseconds(step_us_));
      if (on_step_ && is_warm_) on_step_(batch);
    };
    runner_->is_broken = [this](const SampleRow& row) {
      return row.seed == kBrokenSeed && is_warm_;
    };
    model_ = {.name = "fake",
              .tokenizer = &tokenizer_,
              .vocabulary = tokenizer_.vocabulary(),
              .context_length = context,
              .kv_tokens = int64_t{blocks} * kKvBlockTokens,
              .longest_token = LongestToken(tokenizer_),
              .inspection_bytes = options_.inspection_bytes,
              .max_reduced_pairs = 64,
              .num_layers = kFakeLayers,
              .num_heads = kFakeHeads};
    auto server = GrpcServer::Start(options_, model_, *runner_, clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    is_warm_ = true;
    channel_ = server_->InProcessChannel();
    stub_ = v1::Generation::NewStub(channel_);
  }

  void TearDown() override { StopServer(); }

  void StopServer() {
    is_frozen_ = false;
    if (server_ == nullptr) return;
    EXPECT_TRUE(Eventually([&] { return server_->counters().live() == 0; }));
    ExpectIdle();
    stub_.reset();
    channel_.reset();
    server_.reset();
  }

  // Nothing is owned, nothing is lost, and nothing was our fault but where a test asked for it.
  void ExpectIdle() {
    EXPECT_TRUE(Eventually([&] { return server_->engine().load().blocks_owned == 0; }));
    const EngineLoad load = server_->engine().load();
    EXPECT_EQ(load.blocks_free + load.blocks_cached, load.blocks_total);
    EXPECT_EQ(load.running_sequences + load.waiting_sequences, 0);
    EXPECT_EQ(server_->queue().load().requests, 0);
    EXPECT_EQ(server_->queue().load().prompt_tokens, 0);
    EXPECT_EQ(server_->counters().failed, expected_failures_);
  }

  static v1::GenerateRequest Request(const std::string& prompt, int max_tokens) {
    v1::GenerateRequest request;
    request.set_text(prompt);
    request.mutable_stop()->set_max_tokens(static_cast<uint32_t>(max_tokens));
    request.mutable_stop()->set_ignore_eos(true);
    request.mutable_sampling()->set_temperature(0);
    return request;
  }

  std::vector<TokenId> Expected(const std::string& prompt, int count, const SampleRow& row = {}) {
    return ExpectedTokens(tokenizer_.Encode(prompt, {})->ids, count, row, tokenizer_.vocabulary());
  }

  Streamed Generate(const v1::GenerateRequest& request, grpc::ClientContext& context,
                    const std::function<void(const v1::GenerateEvent&)>& on_event = nullptr,
                    v1::Generation::Stub* stub = nullptr) {
    Streamed streamed;
    const auto reader = (stub != nullptr ? stub : stub_.get())->Generate(&context, request);
    v1::GenerateEvent event;
    while (reader->Read(&event)) {
      EXPECT_EQ(event.sequence_number(), streamed.events.size());
      for (const v1::Token& token : event.tokens().tokens()) streamed.tokens.push_back(token);
      if (on_event) on_event(event);
      streamed.events.push_back(std::move(event));
    }
    streamed.status = reader->Finish();
    return streamed;
  }
  Streamed Generate(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    return Generate(request, context);
  }

  grpc::Status Unary(const v1::GenerateRequest& request, v1::GenerateResponse* response) {
    grpc::ClientContext context;
    return stub_->GenerateUnary(&context, request, response);
  }

  static constexpr uint64_t kBrokenSeed = 666;

  FakeTokenizer tokenizer_;
  SteadyClock clock_;
  ServerOptions options_;
  ServedModel model_;
  std::unique_ptr<FakeRunner> runner_;
  std::function<void(const Batch&)> on_step_;  // On the engine thread; set before StartServer.
  std::atomic<bool> is_frozen_ = false;
  std::atomic<bool> is_warm_ = false;
  std::atomic<int> step_us_ = 0;
  std::atomic<int> tokens_allowed_ = -1;  // Steps that may still run; -1: any number.
  uint64_t expected_failures_ = 0;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Generation::Stub> stub_;
};

}  // namespace vitrine::server
