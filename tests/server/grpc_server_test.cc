// The whole server but for the model, over real sockets and over an in-process channel.
#include "server/grpc_server.h"

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
#include "tests/server/fake_runner.h"

namespace vitrine::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kContext = 512;
constexpr int kBlocks = 256;

ServerOptions TestOptions() {
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
bool Eventually(const std::function<bool()>& holds) {
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
  std::vector<TokenId> ids() const {
    std::vector<TokenId> ids;
    for (const v1::Token& token : tokens) ids.push_back(static_cast<TokenId>(token.id()));
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
    runner_ = std::make_unique<FakeRunner>(
        RunnerLimits{.max_step_rows = options_.scheduler.max_step_tokens,
                     .max_step_sequences = options_.scheduler.max_running_sequences,
                     .num_blocks = blocks,
                     .context_length = context,
                     .vocabulary = tokenizer_.vocabulary()});
    runner_->before_step = [this](const Batch&) {
      while (is_frozen_) std::this_thread::sleep_for(milliseconds(1));
      std::this_thread::sleep_for(std::chrono::microseconds(step_us_));
    };
    runner_->is_broken = [this](const SampleRow& row) {
      return row.seed == kBrokenSeed && is_warm_;
    };
    model_ = {.name = "fake",
              .tokenizer = &tokenizer_,
              .vocabulary = tokenizer_.vocabulary(),
              .context_length = context,
              .kv_tokens = int64_t{blocks} * kKvBlockTokens,
              .longest_token = LongestToken(tokenizer_)};
    auto server = GrpcServer::Start(options_, model_, *runner_, clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    is_warm_ = true;
    channel_ = server_->InProcessChannel();
    stub_ = v1::Generation::NewStub(channel_);
  }

  void TearDown() override {
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
  std::atomic<bool> is_frozen_ = false;
  std::atomic<bool> is_warm_ = false;
  std::atomic<int> step_us_ = 0;
  uint64_t expected_failures_ = 0;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Generation::Stub> stub_;
};

TEST_F(GrpcServerTest, EventsComeAsThePromisedSequence) {
  StartServer();
  step_us_ = 2000;  // The client keeps up.
  v1::GenerateRequest request = Request("hello", 12);
  request.set_client_request_id("mine");
  request.mutable_output()->set_return_prompt_token_ids(true);
  const Streamed streamed = Generate(request);
  ASSERT_TRUE(streamed.status.ok()) << streamed.status.error_message();
  ASSERT_EQ(streamed.events.size(), 1u + 12u + 2u);
  const v1::Accepted& accepted = streamed.events.front().accepted();
  EXPECT_EQ(accepted.client_request_id(), "mine");
  EXPECT_EQ(accepted.prompt_token_count(), 6u);
  EXPECT_EQ(accepted.prompt_token_ids_size(), 6);
  EXPECT_GE(accepted.request_id().size(), 32u);
  EXPECT_EQ(streamed.ids(), Expected("hello", 12));
  for (size_t i = 0; i < streamed.tokens.size(); ++i) {
    EXPECT_EQ(streamed.tokens[i].position(), 6 + i);
  }
  EXPECT_EQ(streamed.reason(), v1::FINISH_REASON_MAX_TOKENS);
  const v1::Done& done = streamed.done();
  EXPECT_EQ(done.usage().prompt_tokens(), 6u);
  EXPECT_EQ(done.usage().completion_tokens(), 12u);
  TokenHash hash;
  for (const TokenId id : streamed.ids()) hash.Add(id);
  EXPECT_EQ(done.token_hash(), hash.value());
  EXPECT_GT(done.timings().decode_us(), 11 * 1000u);
  EXPECT_EQ(done.timings().mean_batch_size(), 1.0f);
}

// Invariant 3, over the wire, for random prompts, stops and lengths.
TEST_F(GrpcServerTest, StreamedTextEqualsUnaryTextEqualsDecodedIds) {
  StartServer();
  std::mt19937 random(17);
  for (int round = 0; round < 60; ++round) {
    v1::GenerateRequest request =
        Request("round " + std::to_string(round), static_cast<int>(random() % 40));
    if (random() % 2 == 0) {
      request.mutable_stop()->add_stop_strings("st");
      request.mutable_stop()->add_stop_strings(std::string("\xB8", 1));
      request.mutable_stop()->set_include_stop_string(random() % 2 == 0);
    }
    const Streamed streamed = Generate(request);
    v1::GenerateResponse unary;
    ASSERT_TRUE(Unary(request, &unary).ok());
    ASSERT_TRUE(streamed.status.ok());
    const v1::Choice& choice = unary.choices(0);
    EXPECT_EQ(choice.text(), streamed.text());
    Utf8Stream decoder;
    std::string decoded = decoder.Append(choice.bytes());
    decoded += decoder.Flush();
    EXPECT_EQ(choice.text(), decoded);
    EXPECT_TRUE(tokenizer_.Decode(streamed.ids()).starts_with(choice.bytes()));
    EXPECT_EQ(choice.finished().reason(), streamed.reason());
    EXPECT_EQ(unary.done().token_hash(), streamed.done().token_hash());
    ASSERT_EQ(choice.tokens_size(), static_cast<int>(streamed.tokens.size()));
  }
}

TEST_F(GrpcServerTest, ThirtyTwoClientsGetWhatEachGetsAlone) {
  StartServer();
  std::vector<std::thread> clients;
  std::vector<Streamed> answers(32);
  for (size_t i = 0; i < answers.size(); ++i) {
    clients.emplace_back(
        [&, i] { answers[i] = Generate(Request("client " + std::to_string(i), 50)); });
  }
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < answers.size(); ++i) {
    ASSERT_TRUE(answers[i].status.ok()) << answers[i].status.error_message();
    EXPECT_EQ(answers[i].ids(), Expected("client " + std::to_string(i), 50));
  }
}

TEST_F(GrpcServerTest, CancelFreesEverythingAndTouchesNobody) {  // Cases 66, 68.
  StartServer();
  step_us_ = 1000;
  std::thread neighbour([&] {
    const Streamed streamed = Generate(Request("neighbour", 100));
    EXPECT_EQ(streamed.ids(), Expected("neighbour", 100));
  });
  grpc::ClientContext context;
  int tokens = 0;
  const Streamed streamed =
      Generate(Request("gone", 400), context, [&](const v1::GenerateEvent& event) {
        tokens += event.tokens().tokens_size();
        if (tokens >= 5) context.TryCancel();
      });
  EXPECT_EQ(streamed.status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return server_->counters().cancelled == 1; }));
  neighbour.join();
}

TEST_F(GrpcServerTest, CancelInTheQueueNeverRuns) {  // Case 67.
  ServerOptions options = TestOptions();
  options.scheduler.max_running_sequences = 1;
  StartServer(options);
  is_frozen_ = true;
  std::thread running([&] { EXPECT_TRUE(Generate(Request("running", 5)).status.ok()); });
  ASSERT_TRUE(Eventually([&] { return server_->engine().load().running_sequences == 1; }));
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, Request("queued", 5));
  ASSERT_TRUE(Eventually([&] { return server_->queue().load().requests == 1; }));
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  is_frozen_ = false;
  running.join();
  EXPECT_TRUE(Eventually([&] { return server_->counters().cancelled == 1; }));
  EXPECT_EQ(runner_->rows, 2 + (8 + 4));  // Warm-up, then only the running one.
}

TEST_F(GrpcServerTest, DeadlineEndsWithItsStatus) {  // Case 74.
  StartServer();
  step_us_ = 5000;
  for (const bool unary : {false, true}) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + milliseconds(60));
    v1::GenerateResponse response;
    const grpc::Status status =
        unary ? stub_->GenerateUnary(&context, Request("slow", 400), &response)
              : Generate(Request("slow", 400), context).status;
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  EXPECT_TRUE(Eventually([&] { return server_->counters().live() == 0; }));
  EXPECT_EQ(server_->counters().cancelled + server_->counters().expired, 2u);
}

TEST_F(GrpcServerTest, AServerSideDeadlineAppliesWhereTheClientSetsNone) {
  ServerOptions options = TestOptions();
  options.request.max_request_us = 50'000;
  StartServer(options);
  step_us_ = 5000;
  EXPECT_EQ(Generate(Request("slow", 400)).status.error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(server_->counters().expired, 1u);
}

TEST_F(GrpcServerTest, TimeLimitIsAFinishReason) {
  StartServer();
  step_us_ = 2000;
  v1::GenerateRequest request = Request("limited", 400);
  request.mutable_stop()->mutable_time_limit()->set_nanos(50'000'000);
  const Streamed streamed = Generate(request);
  ASSERT_TRUE(streamed.status.ok());
  EXPECT_EQ(streamed.reason(), v1::FINISH_REASON_TIME_LIMIT);
  EXPECT_EQ(streamed.ids(), Expected("limited", static_cast<int>(streamed.tokens.size())));
}

TEST_F(GrpcServerTest, MaxTokensZeroComputesThePromptOnly) {  // Case 46.
  StartServer();
  const Streamed streamed = Generate(Request("score me", 0));
  ASSERT_TRUE(streamed.status.ok());
  EXPECT_EQ(streamed.events.size(), 3u);
  EXPECT_EQ(streamed.reason(), v1::FINISH_REASON_MAX_TOKENS);
  EXPECT_EQ(streamed.done().usage().completion_tokens(), 0u);
}

TEST_F(GrpcServerTest, ModelThatNeverEndsStopsAtTheContext) {  // Case 53.
  StartServer();
  v1::GenerateRequest request = Request("on and on", 0);
  request.mutable_stop()->clear_max_tokens();
  const Streamed streamed = Generate(request);
  ASSERT_TRUE(streamed.status.ok());
  EXPECT_EQ(streamed.reason(), v1::FINISH_REASON_CONTEXT_FULL);
  EXPECT_EQ(streamed.tokens.size(), kContext - 10u);
}

TEST_F(GrpcServerTest, EosAndStopTokenAreNotAmongTheTokens) {
  StartServer();
  // A prompt whose answer meets the end token, found by the definition of the model.
  const TokenId eos = tokenizer_.eos_ids().front();
  std::string prompt;
  size_t at = 0;
  for (int i = 0; prompt.empty(); ++i) {
    const std::vector<TokenId> answer = Expected("p" + std::to_string(i), 60);
    at = static_cast<size_t>(std::ranges::find(answer, eos) - answer.begin());
    if (at > 2 && at < answer.size()) prompt = "p" + std::to_string(i);
  }
  v1::GenerateRequest request = Request(prompt, 60);
  request.mutable_stop()->set_ignore_eos(false);
  Streamed streamed = Generate(request);
  EXPECT_EQ(streamed.reason(), v1::FINISH_REASON_EOS);
  EXPECT_EQ(streamed.tokens.size(), at);
  const v1::ChoiceFinished& finished =
      streamed.events.at(streamed.events.size() - 2).choice_finished();
  EXPECT_EQ(finished.matched_stop_token(), static_cast<uint32_t>(eos));
  request.mutable_stop()->add_stop_token_ids(streamed.tokens[1].id());
  streamed = Generate(request);
  EXPECT_EQ(streamed.reason(), v1::FINISH_REASON_STOP_TOKEN);
  EXPECT_LE(streamed.tokens.size(), 1u);
}

TEST_F(GrpcServerTest, SeedDecidesAndAFreshOneIsReported) {  // Case 51.
  StartServer();
  v1::GenerateRequest request = Request("dice", 20);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(7);
  EXPECT_EQ(Generate(request).ids(), Expected("dice", 20, {.temperature = 1, .seed = 7}));
  request.mutable_sampling()->clear_seed();
  const Streamed first = Generate(request);
  const Streamed second = Generate(request);
  const uint64_t seed = first.events.front().accepted().seed();
  EXPECT_NE(seed, second.events.front().accepted().seed());
  EXPECT_EQ(first.ids(), Expected("dice", 20, {.temperature = 1, .seed = seed}));
}

TEST_F(GrpcServerTest, NonFiniteLogitsFailOnlyTheirRequest) {  // Case 49.
  StartServer();
  step_us_ = 1000;
  std::thread neighbour(
      [&] { EXPECT_EQ(Generate(Request("fine", 40)).ids(), Expected("fine", 40)); });
  v1::GenerateRequest request = Request("broken", 40);
  request.mutable_sampling()->set_seed(kBrokenSeed);
  expected_failures_ = 1;
  const Streamed streamed = Generate(request);
  EXPECT_EQ(streamed.status.error_code(), grpc::StatusCode::INTERNAL);
  neighbour.join();
}

TEST_F(GrpcServerTest, FullQueueRefusesAtOnceWithARetryHint) {  // Case 87.
  ServerOptions options = TestOptions();
  options.scheduler.max_running_sequences = 1;
  options.queue.max_requests = 1;
  StartServer(options);
  is_frozen_ = true;
  grpc::ClientContext running_context;
  grpc::ClientContext queued_context;
  const auto running = stub_->Generate(&running_context, Request("a", 3));
  ASSERT_TRUE(Eventually([&] { return server_->engine().load().running_sequences == 1; }));
  const auto queued = stub_->Generate(&queued_context, Request("b", 3));
  ASSERT_TRUE(Eventually([&] { return server_->queue().load().requests == 1; }));
  const Streamed refused = Generate(Request("c", 3));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(refused.events.empty());
  google::rpc::Status rich;
  google::rpc::RetryInfo retry;
  ASSERT_TRUE(rich.ParseFromString(refused.status.error_details()));
  ASSERT_EQ(rich.details_size(), 1);
  ASSERT_TRUE(rich.details(0).UnpackTo(&retry));
  EXPECT_GT(retry.retry_delay().seconds() + retry.retry_delay().nanos(), 0);
  is_frozen_ = false;
  v1::GenerateEvent event;
  while (running->Read(&event) || queued->Read(&event)) {
  }
  EXPECT_TRUE(running->Finish().ok());
  EXPECT_TRUE(queued->Finish().ok());
}

TEST_F(GrpcServerTest, WhatCanNeverFitIsRefusedWithBothNumbers) {  // Case 85.
  StartServer(TestOptions(), /*blocks=*/4);
  Streamed refused = Generate(Request(std::string(70, 'x'), 4));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(refused.status.error_details().empty());
  EXPECT_NE(refused.status.error_message().find("74"), std::string::npos)
      << refused.status.error_message();
  EXPECT_NE(refused.status.error_message().find("64"), std::string::npos);
  EXPECT_TRUE(Generate(Request("fits", 4)).status.ok());
}

TEST_F(GrpcServerTest, SlowReaderLosesNothingAndDelaysNobody) {  // Case 76.
  StartServer();
  grpc::ChannelArguments arguments;
  // Without these the client's window takes megabytes before the first write waits.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1024);
  const auto slow = v1::Generation::NewStub(
      grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  bool is_first = true;
  const Streamed streamed = Generate(
      Request("slow", 450), context,
      [&](const v1::GenerateEvent&) {
        if (!std::exchange(is_first, false)) return;
        // The engine is done with all of it before the client reads on.
        EXPECT_TRUE(Eventually([&] { return server_->counters().live() == 0; }));
        EXPECT_EQ(Generate(Request("quick", 20)).ids(), Expected("quick", 20));
      },
      slow.get());
  ASSERT_TRUE(streamed.status.ok());
  EXPECT_EQ(streamed.ids(), Expected("slow", 450));
  EXPECT_LT(streamed.events.size(), 450u);
}

TEST_F(GrpcServerTest, AClientThatReadsNothingLosesItsStream) {
  ServerOptions options = TestOptions();
  options.transport.no_progress_us = 200'000;
  // More bytes than the windows of both sides take.
  constexpr int kLong = 16384;
  StartServer(options, /*blocks=*/2 * kLong / kKvBlockTokens, /*context=*/2 * kLong);
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1024);
  const auto dead = v1::Generation::NewStub(
      grpc::CreateCustomChannel(server_->address(), grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  const auto reader = dead->Generate(&context, Request("dead", kLong));
  EXPECT_TRUE(Eventually([&] { return server_->open_streams() == 0; }));
  context.TryCancel();
  EXPECT_FALSE(reader->Finish().ok());
}

TEST_F(GrpcServerTest, DrainFinishesWhatRunsAndRefusesTheRest) {  // Case 75.
  StartServer();
  step_us_ = 1000;
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&, i] {
      const std::string prompt = "drained " + std::to_string(i);
      const Streamed streamed = Generate(Request(prompt, 150));
      EXPECT_TRUE(streamed.status.ok()) << streamed.status.error_message();
      EXPECT_EQ(streamed.ids(), Expected(prompt, 150));
    });
  }
  ASSERT_TRUE(Eventually([&] { return server_->engine().load().running_sequences == 8; }));
  std::thread drain([&] { server_->Drain([] { return false; }); });
  grpc::Status late;
  ASSERT_TRUE(Eventually([&] {
    late = Generate(Request("late", 1)).status;
    return !late.ok();
  }));
  EXPECT_EQ(late.error_code(), grpc::StatusCode::UNAVAILABLE);
  drain.join();
  for (std::thread& client : clients) client.join();
}

TEST_F(GrpcServerTest, AfterTheDrainLimitAnswersEndWithShutdown) {
  ServerOptions options = TestOptions();
  options.drain_us = 50'000;
  options.scheduler.max_running_sequences = 1;
  StartServer(options);
  step_us_ = 2000;
  Streamed cut;
  std::thread running([&] { cut = Generate(Request("cut", 450)); });
  ASSERT_TRUE(Eventually([&] { return server_->engine().load().running_sequences == 1; }));
  Streamed waiting;
  std::thread queued([&] { waiting = Generate(Request("queued", 450)); });
  ASSERT_TRUE(Eventually([&] { return server_->queue().load().requests == 1; }));
  server_->Drain([] { return false; });
  running.join();
  queued.join();
  ASSERT_TRUE(cut.status.ok()) << cut.status.error_message();
  EXPECT_EQ(cut.reason(), v1::FINISH_REASON_SHUTDOWN);
  EXPECT_EQ(cut.ids(), Expected("cut", static_cast<int>(cut.tokens.size())));
  EXPECT_EQ(waiting.status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(GrpcServerTest, HealthFollowsTheEngine) {  // Case 83.
  ServerOptions options = TestOptions();
  options.stall_us = 200'000;
  StartServer(options);
  const auto health = grpc::health::v1::Health::NewStub(channel_);
  const auto status = [&](const std::string& service) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    grpc::health::v1::HealthCheckResponse response;
    request.set_service(service);
    EXPECT_TRUE(health->Check(&context, request, &response).ok());
    return response.status();
  };
  using grpc::health::v1::HealthCheckResponse;
  EXPECT_EQ(status(""), HealthCheckResponse::SERVING);
  EXPECT_EQ(status("vitrine.v1.Generation"), HealthCheckResponse::SERVING);
  is_frozen_ = true;
  std::thread client([&] { EXPECT_TRUE(Generate(Request("frozen", 3)).status.ok()); });
  EXPECT_TRUE(Eventually([&] { return status("") == HealthCheckResponse::NOT_SERVING; }));
  is_frozen_ = false;
  client.join();
  EXPECT_TRUE(Eventually([&] { return status("") == HealthCheckResponse::SERVING; }));
}

TEST_F(GrpcServerTest, PrefixCacheIsExactAndPartitionedBySalt) {
  StartServer();
  v1::GenerateRequest request = Request(std::string(99, 'p'), 4);  // 100 tokens with bos.
  EXPECT_EQ(Generate(request).done().usage().cached_prompt_tokens(), 0u);
  Streamed warm = Generate(request);
  EXPECT_EQ(warm.done().usage().cached_prompt_tokens(), 96u);
  EXPECT_EQ(warm.ids(), Expected(std::string(99, 'p'), 4));
  request.set_cache_salt("tenant");
  EXPECT_EQ(Generate(request).done().usage().cached_prompt_tokens(), 0u);
}

TEST_F(GrpcServerTest, TokenizeDetokenizeAndWhatIsNotThereYet) {
  StartServer();
  grpc::ClientContext first;
  v1::TokenizeRequest ask;
  v1::TokenizeResponse tokens;
  ask.set_text(std::string("ab\0cd", 5));
  ASSERT_TRUE(stub_->Tokenize(&first, ask, &tokens).ok());
  EXPECT_EQ(tokens.token_count(), 6u);
  EXPECT_EQ(tokens.byte_offsets_size(), 7);
  EXPECT_EQ(tokens.byte_offsets(6), 5u);
  grpc::ClientContext second;
  v1::DetokenizeRequest back;
  v1::DetokenizeResponse text;
  back.mutable_token_ids()->Add(tokens.token_ids().begin() + 1, tokens.token_ids().end());
  ASSERT_TRUE(stub_->Detokenize(&second, back, &text).ok());
  EXPECT_EQ(text.text(), ask.text());
  grpc::ClientContext third;
  v1::RenderChatResponse rendered;
  EXPECT_EQ(stub_->RenderChat(&third, {}, &rendered).error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

// Invariant 12 and case 70: random cancels and deadlines at every state.
TEST_F(GrpcServerTest, RandomCancelsAndDeadlinesLoseNothing) {
  ServerOptions options = TestOptions();
  options.queue.max_requests = 1000;
  StartServer(options, /*blocks=*/64);
  step_us_ = 200;
  std::vector<std::thread> clients;
  for (uint32_t c = 0; c < 8; ++c) {
    clients.emplace_back([&, c] {
      std::mt19937 random(c);
      for (int round = 0; round < 40; ++round) {
        const std::string prompt(1 + random() % 120, static_cast<char>('a' + random() % 4));
        const int max_tokens = static_cast<int>(random() % 40);
        grpc::ClientContext context;
        if (random() % 3 == 0) {
          context.set_deadline(std::chrono::system_clock::now() +
                               std::chrono::microseconds(random() % 20'000));
        }
        const int cancel_at = random() % 3 == 0 ? static_cast<int>(random() % 20) : -1;
        int events = 0;
        const Streamed streamed =
            Generate(Request(prompt, max_tokens), context, [&](const v1::GenerateEvent&) {
              if (events++ == cancel_at) context.TryCancel();
            });
        // Whatever came is a beginning of the right answer.
        EXPECT_EQ(streamed.ids(), Expected(prompt, static_cast<int>(streamed.tokens.size())));
        if (streamed.status.ok()) {
          EXPECT_EQ(streamed.tokens.size(), static_cast<size_t>(max_tokens));
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

}  // namespace
}  // namespace vitrine::server
