// Small cases that broke other servers, one row each. The numbers are those of the list of known
// bugs that this project keeps; each row says what went wrong and where it was reported. What an op
// or the scheduler alone can show is tested there: preemption and prefix blocks also in
// scheduler_test.cc, windows of attention (case 91) in tests/kernels/paged_attention_test.cc.
#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "tests/server/server_fixture.h"

namespace vitrine::server {
namespace {

using grpc::health::v1::HealthCheckResponse;

class BugLogTest : public GrpcServerTest {
 public:
  // Stop strings. `from` and `bytes` cut the stop out of what the model will say.
  struct Stopped {
    std::string said;  // Bytes of the answer without any stop.
    v1::Choice unary;
    Streamed streamed;
  };
  Stopped StopAt(const std::vector<std::pair<size_t, size_t>>& cuts) {
    StartServer();
    Stopped result;
    result.said = tokenizer_.Decode(Expected("alphabet", 40));
    v1::GenerateRequest request = Request("alphabet", 40);
    for (const auto& [from, bytes] : cuts) {
      request.mutable_stop()->add_stop_strings(result.said.substr(from, bytes));
    }
    v1::GenerateResponse response;
    EXPECT_TRUE(Unary(request, &response).ok());
    result.unary = response.choices(0);
    result.streamed = Generate(request);
    EXPECT_EQ(result.streamed.text(), result.unary.text());
    return result;
  }

  void NothingOfAStopOverSeveralTokensLeaks() {
    const Stopped result = StopAt({{5, 7}});
    const size_t match = result.said.find(result.said.substr(5, 7));
    EXPECT_EQ(result.unary.bytes(), result.said.substr(0, match));
  }
  void AStopThatBeginsInsideATokenIsNotIgnored() {
    for (const size_t from : {3u, 4u, 6u}) {
      const Stopped result = StopAt({{from, 5}});
      EXPECT_EQ(result.unary.finished().reason(), v1::FINISH_REASON_STOP_STRING);
      EXPECT_EQ(result.unary.bytes(),
                result.said.substr(0, result.said.find(result.said.substr(from, 5))));
      TearDown();
    }
  }
  void TheByteBeforeAOneByteStopIsKept() {
    const Stopped result = StopAt({{9, 1}});
    EXPECT_EQ(result.unary.bytes(), result.said.substr(0, result.said.find(result.said[9])));
  }
  void OfTwoStopsTheEarliestWinsThenTheLongest() {
    const Stopped result = StopAt({{6, 2}, {6, 5}, {8, 9}});
    EXPECT_EQ(result.unary.bytes(), result.said.substr(0, 6));
    EXPECT_EQ(result.unary.finished().matched_stop_string(), result.said.substr(6, 5));
  }
  void AbsurdStopsAreRefusedAndThePromptNeverMatches() {
    StartServer();
    v1::GenerateRequest request = Request("stop here", 6);
    request.mutable_stop()->add_stop_strings("stop here");
    EXPECT_EQ(Generate(request).ids(), Expected("stop here", 6));
    for (const std::string& bad : {std::string(), std::string(257, 's')}) {
      request.mutable_stop()->set_stop_strings(0, bad);
      EXPECT_EQ(Generate(request).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    }
    for (int i = 0; i < 1000; ++i) request.mutable_stop()->add_stop_strings("x");
    EXPECT_EQ(Generate(request).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  void IdsTextAndCountsAgreeAfterAStop() {
    const Stopped result = StopAt({{11, 3}});
    const v1::Done& done = result.streamed.done();
    EXPECT_EQ(done.usage().completion_tokens(), result.streamed.tokens.size());
    ASSERT_EQ(result.unary.tokens_size(), static_cast<int>(result.streamed.tokens.size()));
    for (int i = 0; i < result.unary.tokens_size(); ++i) {
      const v1::Token& token = result.streamed.tokens[static_cast<size_t>(i)];
      EXPECT_EQ(result.unary.tokens(i).id(), token.id());
      EXPECT_EQ(token.position(), 9u + static_cast<uint32_t>(i));
    }
    EXPECT_TRUE(tokenizer_.Decode(result.streamed.ids()).starts_with(result.unary.bytes()));
  }

  void ACancelReachesALongPrefill() {
    StartServer();
    step_us_ = 10'000;
    grpc::ClientContext context;
    const auto reader = stub_->Generate(&context, Request(std::string(500, 'p'), 4));
    ASSERT_TRUE(Eventually([&] { return server_->engine().load().running_sequences == 1; }));
    context.TryCancel();
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
    EXPECT_TRUE(Eventually([&] { return server_->engine().load().blocks_owned == 0; }));
    EXPECT_LT(runner_->rows, 501);
  }
  void CancellingAQueuedRequestLeavesTheRunningOneAlone() {
    ServerOptions options = TestOptions();
    options.scheduler.max_running_sequences = 1;
    StartServer(options);
    is_frozen_ = true;
    Streamed running;
    std::thread client([&] { running = Generate(Request("running", 80)); });
    ASSERT_TRUE(Eventually([&] { return server_->engine().load().running_sequences == 1; }));
    grpc::ClientContext context;
    const auto queued = stub_->Generate(&context, Request("queued", 80));
    ASSERT_TRUE(Eventually([&] { return server_->queue().load().requests == 1; }));
    context.TryCancel();
    EXPECT_EQ(queued->Finish().error_code(), grpc::StatusCode::CANCELLED);
    EXPECT_TRUE(Eventually([&] { return server_->open_streams() == 1; }));  // The server knows too.
    is_frozen_ = false;
    client.join();
    EXPECT_EQ(running.ids(), Expected("running", 80));
    EXPECT_EQ(runner_->rows, 2 + 8 + 79);  // Warm-up, then the running one alone.
  }
  void ADeadlineAtTheLastTokenHasOneEnd() {
    StartServer();
    std::mt19937 random(3);
    for (int round = 0; round < 300; ++round) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() +
                           std::chrono::microseconds(200 + random() % 2000));
      const Streamed streamed = Generate(Request("race", 3), context);
      // RESOURCE_EXHAUSTED: refused at once, because it could not start in time.
      EXPECT_TRUE(streamed.status.ok() ||
                  streamed.status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
                  streamed.status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED)
          << streamed.status.error_code() << ": " << streamed.status.error_message();
      if (streamed.status.ok()) {
        EXPECT_EQ(streamed.ids(), Expected("race", 3));
      }
    }
  }
  void TwoLiveRequestsMayHaveOneClientId() {
    StartServer();
    step_us_ = 500;
    Streamed answers[2];
    std::vector<std::thread> clients;
    for (Streamed& answer : answers) {
      clients.emplace_back([&] {
        v1::GenerateRequest request = Request("same name", 50);
        request.set_client_request_id("one");
        answer = Generate(request);
      });
    }
    for (std::thread& client : clients) client.join();
    for (const Streamed& answer : answers) EXPECT_EQ(answer.ids(), Expected("same name", 50));
    EXPECT_NE(answers[0].events.front().accepted().request_id(),
              answers[1].events.front().accepted().request_id());
  }
  void ADeadlineInThePastIsNeverScheduled() {
    StartServer();
    const int64_t rows = runner_->rows;
    for (const int ms : {-1000, -5}) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + milliseconds(ms));
      EXPECT_EQ(Generate(Request("late", 4), context).status.error_code(),
                grpc::StatusCode::DEADLINE_EXCEEDED);
    }
    EXPECT_EQ(runner_->rows, rows);
  }
  void ADeadlineInTheQueueIsNeverScheduled() {
    ServerOptions options = TestOptions();
    options.scheduler.max_running_sequences = 1;
    StartServer(options);
    is_frozen_ = true;
    std::thread running([&] { EXPECT_TRUE(Generate(Request("running", 3)).status.ok()); });
    ASSERT_TRUE(Eventually([&] { return server_->engine().load().running_sequences == 1; }));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + milliseconds(30));
    EXPECT_EQ(Generate(Request("queued", 3), context).status.error_code(),
              grpc::StatusCode::DEADLINE_EXCEEDED);
    is_frozen_ = false;
    running.join();
    EXPECT_TRUE(Eventually([&] { return server_->counters().live() == 0; }));
    EXPECT_EQ(runner_->rows, 2 + 8 + 2);
  }

  void ManyClientsThatReadNothingDelayNobody() {
    ServerOptions options = TestOptions();
    options.queue.max_requests = 200;
    StartServer(options);
    std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
    std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateEvent>>> readers;
    for (int i = 0; i < 100; ++i) {
      contexts.push_back(std::make_unique<grpc::ClientContext>());
      readers.push_back(stub_->Generate(contexts.back().get(), Request("unread", 100)));
    }
    EXPECT_EQ(Generate(Request("read", 20)).ids(), Expected("read", 20));
    EXPECT_TRUE(Eventually([&] { return server_->counters().finished == 101; }));
    for (const auto& context : contexts) context->TryCancel();
    for (const auto& reader : readers) static_cast<void>(reader->Finish());
  }
  void SendsWhileTheEngineStandsStillAreRefusedNotKept() {
    constexpr int kCalls = 3000;
    StartServer();
    is_frozen_ = true;
    struct Call {
      grpc::ClientContext context;
      v1::GenerateRequest request;
      v1::GenerateResponse response;
    };
    std::vector<Call> calls(kCalls);
    std::atomic<int> refused = 0;
    std::atomic<int> answered = 0;
    for (Call& call : calls) {
      call.request = Request(std::string(200, 'x'), 2);
      stub_->async()->GenerateUnary(
          &call.context, &call.request, &call.response, [&](const grpc::Status& status) {
            if (status.ok()) ++answered;
            if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
              ++refused;
            }
          });
    }
    // The queue and what the engine took before it stood still.
    const int kept = options_.queue.max_requests + options_.scheduler.max_running_sequences;
    EXPECT_TRUE(Eventually([&] { return refused >= kCalls - kept; }));
    is_frozen_ = false;
    EXPECT_TRUE(Eventually([&] { return refused + answered == kCalls; }));
    EXPECT_GE(answered, options_.queue.max_requests);
  }
  void ShutdownEndsEveryKindOfCall() {
    ServerOptions options = TestOptions();
    options.drain_us = 0;
    options.scheduler.max_running_sequences = 1;
    StartServer(options);
    step_us_ = 1000;
    grpc::ClientContext unread_context;
    const auto unread = stub_->Generate(&unread_context, Request("unread", 400));
    ASSERT_TRUE(Eventually([&] { return server_->engine().load().running_sequences == 1; }));
    std::thread unary([&] {
      v1::GenerateResponse response;
      EXPECT_EQ(Unary(Request("queued", 3), &response).error_code(), grpc::StatusCode::UNAVAILABLE);
    });
    ASSERT_TRUE(Eventually([&] { return server_->queue().load().requests == 1; }));
    server_->Drain([] { return true; });
    EXPECT_EQ(server_->open_streams(), 0u);
    unary.join();
    unread_context.TryCancel();
    static_cast<void>(unread->Finish());
  }
  void TheFirstEventWaitsForNothing() {
    StartServer();
    is_frozen_ = true;
    grpc::ClientContext context;
    const auto reader = stub_->Generate(&context, Request("first", 3));
    v1::GenerateEvent event;
    ASSERT_TRUE(reader->Read(&event));
    EXPECT_TRUE(event.has_accepted());
    is_frozen_ = false;
    while (reader->Read(&event)) {
    }
    EXPECT_TRUE(reader->Finish().ok());
  }
  void AnErrorAboutAHugePromptStaysSmallAndDoesNotQuoteIt() {
    StartServer();
    const Streamed refused = Generate(Request(std::string(1 << 20, 'q') + "\xFF", 3));
    EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_LE(refused.status.error_message().size(), 512u);
    EXPECT_LE(refused.status.error_details().size(), 4096u);
    EXPECT_EQ(refused.status.error_message().find("qqq"), std::string::npos);
  }
  void ACompressedMessageIsNotUnpacked() {
    StartServer();
    grpc::ClientContext context;
    context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    const auto wire = v1::Generation::NewStub(
        grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
    const Streamed refused =
        Generate(Request(std::string(1 << 20, 'x'), 3), context, nullptr, wire.get());
    EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
    EXPECT_TRUE(Generate(Request("after", 3)).status.ok());
  }

  // A step without the decoding stream's row would be a gap in it.
  void ALongPrefillNeverHoldsUpADecode() {
    constexpr uint64_t kSeed = 77;
    std::atomic<int> mixed = 0;
    std::atomic<int> gaps = 0;
    on_step_ = [&](const Batch& batch) {
      const bool decodes = std::ranges::any_of(
          batch.sampling, [](const SampleRow& row) { return row.seed == kSeed; });
      const bool prefills = batch.rows() > batch.sequences();
      if (prefills && decodes) ++mixed;
      if (prefills && !decodes) ++gaps;
    };
    StartServer();
    step_us_ = 1000;
    v1::GenerateRequest request = Request("", 300);
    request.mutable_sampling()->set_seed(kSeed);
    grpc::ClientContext context;
    std::thread other;
    const Streamed streamed = Generate(request, context, [&](const v1::GenerateEvent& event) {
      if (!event.has_tokens() || other.joinable()) return;
      other = std::thread(
          [&] { EXPECT_TRUE(Generate(Request(std::string(450, 'l'), 2)).status.ok()); });
    });
    other.join();
    EXPECT_EQ(streamed.tokens.size(), 300u);
    StopServer();  // The engine thread writes to this stack.
    EXPECT_GE(mixed, 10);
    EXPECT_EQ(gaps, 0);
  }
  void EqualPromptsInOneStepAreRight() {
    ServerOptions options = TestOptions();
    options.scheduler.max_running_sequences = 64;
    StartServer(options);
    std::vector<std::thread> clients;
    const std::vector<TokenId> expected = Expected(std::string(120, 's'), 6);
    for (int i = 0; i < 64; ++i) {
      clients.emplace_back(
          [&] { EXPECT_EQ(Generate(Request(std::string(120, 's'), 6)).ids(), expected); });
    }
    for (std::thread& client : clients) client.join();
  }
  void APoolChurnedThroughGivesNoStaleBlock() {
    StartServer(TestOptions(), /*blocks=*/24);
    std::mt19937 random(9);
    for (int round = 0; round < 150; ++round) {
      const std::string prompt(20 + random() % 200, static_cast<char>('a' + random() % 3));
      EXPECT_EQ(Generate(Request(prompt, 5)).ids(), Expected(prompt, 5));
    }
  }
  void PreemptedAnswersAreWholeAndNotDoubled() {
    ServerOptions options = TestOptions();
    options.scheduler.optimistic_admission = true;
    StartServer(options, /*blocks=*/20);
    is_frozen_ = true;  // Until all are there: how many are preempted must not depend on timing.
    std::vector<std::thread> clients;
    for (int i = 0; i < 8; ++i) {
      clients.emplace_back([&, i] {
        const std::string prompt(30, static_cast<char>('a' + i));
        v1::GenerateRequest request = Request(prompt, 120);
        request.mutable_sampling()->set_temperature(1);
        request.mutable_sampling()->set_seed(7);
        EXPECT_EQ(Generate(request).ids(), Expected(prompt, 120, {.temperature = 1, .seed = 7}));
      });
    }
    EXPECT_TRUE(Eventually([&] { return server_->open_streams() == 8; }));
    is_frozen_ = false;
    for (std::thread& client : clients) client.join();
    EXPECT_GE(server_->engine().load().preemptions, 3);
  }

  void QueuedRequestsOfGoneClientsDoNotRun() {
    constexpr size_t kQueued = 5;
    ServerOptions options = TestOptions();
    options.scheduler.max_running_sequences = 1;
    StartServer(options);
    is_frozen_ = true;
    std::thread running([&] { EXPECT_TRUE(Generate(Request("running", 5)).status.ok()); });
    ASSERT_TRUE(Eventually([&] { return server_->engine().load().running_sequences == 1; }));
    std::array<grpc::ClientContext, kQueued> contexts;
    std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateEvent>>> readers;
    for (grpc::ClientContext& context : contexts) {
      readers.push_back(stub_->Generate(&context, Request("queued", 5)));
    }
    ASSERT_TRUE(
        Eventually([&] { return server_->queue().load().requests == static_cast<int>(kQueued); }));
    for (grpc::ClientContext& context : contexts) context.TryCancel();
    for (const auto& reader : readers) {
      EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
    }
    EXPECT_TRUE(Eventually([&] { return server_->open_streams() == 1; }));  // The server knows too.
    is_frozen_ = false;
    running.join();
    EXPECT_TRUE(Eventually([&] { return server_->counters().cancelled == kQueued; }));
    EXPECT_EQ(runner_->rows, 2 + (8 + 4));  // Warm-up, then only the running one.
  }
  HealthCheckResponse::ServingStatus Health(const std::string& service = "") {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    HealthCheckResponse response;
    request.set_service(service);
    const auto health = grpc::health::v1::Health::NewStub(channel_);
    EXPECT_TRUE(health->Check(&context, request, &response).ok());
    return response.status();
  }
  void DrainCutsNoStream() {
    constexpr int kStreams = 20;
    StartServer();
    is_frozen_ = true;
    std::vector<std::thread> clients;
    for (int i = 0; i < kStreams; ++i) {
      clients.emplace_back([&, i] {
        const std::string prompt = "drained " + std::to_string(i);
        const Streamed streamed = Generate(Request(prompt, 150));
        EXPECT_TRUE(streamed.status.ok()) << streamed.status.error_message();
        EXPECT_EQ(streamed.ids(), Expected(prompt, 150));
      });
    }
    EXPECT_TRUE(Eventually([&] { return server_->counters().accepted == kStreams; }));
    std::thread drain([&] { server_->Drain([] { return false; }); });
    EXPECT_TRUE(Eventually([&] { return Health() == HealthCheckResponse::NOT_SERVING; }));
    grpc::Status late;
    EXPECT_TRUE(Eventually([&] {
      late = Generate(Request("late", 0)).status;
      return late.error_code() == grpc::StatusCode::UNAVAILABLE;
    }));
    EXPECT_EQ(late.error_message(), "the server is draining");
    is_frozen_ = false;
    drain.join();
    for (std::thread& client : clients) client.join();
  }
  void HealthTellsOfAFrozenLoop() {
    ServerOptions options = TestOptions();
    options.stall_us = 200'000;
    StartServer(options);
    EXPECT_EQ(Health(), HealthCheckResponse::SERVING);
    EXPECT_EQ(Health("vitrine.v1.Generation"), HealthCheckResponse::SERVING);
    is_frozen_ = true;
    std::thread client([&] { EXPECT_TRUE(Generate(Request("frozen", 3)).status.ok()); });
    EXPECT_TRUE(Eventually([&] { return Health() == HealthCheckResponse::NOT_SERVING; }));
    is_frozen_ = false;
    client.join();
    EXPECT_TRUE(Eventually([&] { return Health() == HealthCheckResponse::SERVING; }));
  }
  void WhatNeverFitsIsNotQueued() {
    StartServer(TestOptions(), /*blocks=*/4);
    Streamed refused = Generate(Request(std::string(70, 'x'), 4));
    EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_TRUE(refused.status.error_details().empty());
    EXPECT_NE(refused.status.error_message().find("74"), std::string::npos)
        << refused.status.error_message();
    EXPECT_NE(refused.status.error_message().find("64"), std::string::npos);
    EXPECT_TRUE(Generate(Request("fits", 4)).status.ok());
  }
  void BothCapsOfTheQueueHold() {
    for (const bool counts_tokens : {false, true}) {
      ServerOptions options = TestOptions();
      options.scheduler.max_running_sequences = 1;
      if (counts_tokens) {
        options.queue.max_prompt_tokens = 30;
      } else {
        options.queue.max_requests = 1;
      }
      StartServer(options);
      is_frozen_ = true;
      std::thread running([&] { EXPECT_TRUE(Generate(Request("a", 3)).status.ok()); });
      EXPECT_TRUE(Eventually([&] { return server_->engine().load().running_sequences == 1; }));
      std::thread queued(
          [&] { EXPECT_TRUE(Generate(Request(std::string(20, 'b'), 3)).status.ok()); });
      EXPECT_TRUE(Eventually([&] { return server_->queue().load().requests == 1; }));
      const Streamed refused = Generate(Request(std::string(20, 'c'), 3));
      EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
      EXPECT_TRUE(refused.events.empty());
      EXPECT_GT(RetryNanos(refused.status), 0);
      is_frozen_ = false;
      running.join();
      queued.join();
      TearDown();
    }
  }
  // Of the RetryInfo in the details of a refusal; -1: there is none.
  static int64_t RetryNanos(const grpc::Status& status) {
    google::rpc::Status rich;
    google::rpc::RetryInfo retry;
    if (!rich.ParseFromString(status.error_details()) || rich.details_size() != 1 ||
        !rich.details(0).UnpackTo(&retry)) {
      return -1;
    }
    return retry.retry_delay().seconds() * 1'000'000'000 + retry.retry_delay().nanos();
  }
};

struct LoggedBug {
  int number;
  const char* reported;
  const char* name;
  void (BugLogTest::*run)();
};

#define VITRINE_CASE(number, reported, name) {number, reported, #name, &BugLogTest::name}
constexpr LoggedBug kLoggedBugs[] = {
    VITRINE_CASE(57, "vllm#3574", NothingOfAStopOverSeveralTokensLeaks),
    VITRINE_CASE(58, "llama.cpp#11538", AStopThatBeginsInsideATokenIsNotIgnored),
    VITRINE_CASE(59, "llama.cpp#9867", TheByteBeforeAOneByteStopIsKept),
    VITRINE_CASE(61, "omlx#2386", OfTwoStopsTheEarliestWinsThenTheLongest),
    VITRINE_CASE(63, "", AbsurdStopsAreRefusedAndThePromptNeverMatches),
    VITRINE_CASE(64, "TensorRT-LLM#18190", IdsTextAndCountsAgreeAfterAStop),
    VITRINE_CASE(66, "ik_llama.cpp#1020", ACancelReachesALongPrefill),
    VITRINE_CASE(67, "llama.cpp#13262", QueuedRequestsOfGoneClientsDoNotRun),
    VITRINE_CASE(68, "ik_llama.cpp#1929", CancellingAQueuedRequestLeavesTheRunningOneAlone),
    VITRINE_CASE(70, "triton server#7368", ADeadlineAtTheLastTokenHasOneEnd),
    VITRINE_CASE(71, "vllm#10583", TwoLiveRequestsMayHaveOneClientId),
    VITRINE_CASE(74, "", ADeadlineInThePastIsNeverScheduled),
    VITRINE_CASE(74, "", ADeadlineInTheQueueIsNeverScheduled),
    VITRINE_CASE(75, "dynamo#791", DrainCutsNoStream),
    VITRINE_CASE(76, "grpc#37715", ManyClientsThatReadNothingDelayNobody),
    VITRINE_CASE(77, "grpc#29836", SendsWhileTheEngineStandsStillAreRefusedNotKept),
    VITRINE_CASE(79, "grpc#39114", ShutdownEndsEveryKindOfCall),
    VITRINE_CASE(80, "grpc#34231", TheFirstEventWaitsForNothing),
    VITRINE_CASE(81, "grpc#37852", AnErrorAboutAHugePromptStaysSmallAndDoesNotQuoteIt),
    VITRINE_CASE(82, "grpc#41996", ACompressedMessageIsNotUnpacked),
    VITRINE_CASE(83, "sglang#853", HealthTellsOfAFrozenLoop),
    VITRINE_CASE(85, "vllm#39734", WhatNeverFitsIsNotQueued),
    VITRINE_CASE(86, "sglang#32549", ALongPrefillNeverHoldsUpADecode),
    VITRINE_CASE(87, "vllm#18826", BothCapsOfTheQueueHold),
    VITRINE_CASE(88, "vllm#37152", EqualPromptsInOneStepAreRight),
    VITRINE_CASE(88, "LMCache#4385", APoolChurnedThroughGivesNoStaleBlock),
    VITRINE_CASE(89, "vllm#16832", PreemptedAnswersAreWholeAndNotDoubled),
};
#undef VITRINE_CASE

class BugLog : public BugLogTest, public testing::WithParamInterface<LoggedBug> {};

TEST_P(BugLog, IsRight) {
  SCOPED_TRACE(GetParam().reported);
  (this->*GetParam().run)();
}

INSTANTIATE_TEST_SUITE_P(Cases, BugLog, testing::ValuesIn(kLoggedBugs), [](const auto& row) {
  return "Case" + std::to_string(row.param.number) + row.param.name;
});

}  // namespace
}  // namespace vitrine::server
