// How requests end: cancels, deadlines, limits, slow clients, drain, health.
#include <gtest/gtest.h>

#include "tests/server/server_fixture.h"

namespace vitrine::server {
namespace {

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
  ASSERT_TRUE(Eventually([&] { return server_->open_streams() == 1; }));
  EXPECT_TRUE(Eventually([&] { return server_->open_streams() == 0; }));
  context.TryCancel();
  EXPECT_FALSE(reader->Finish().ok());
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
