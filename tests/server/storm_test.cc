// Thousands of requests that are cancelled or expire at any moment of their life: queued, in their
// prompt, while they answer, at their last token, while the client reads slowly.
#include <gtest/gtest.h>

#include "tests/server/server_fixture.h"

namespace vitrine::server {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr int kRequests = 3'000;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
constexpr int kRequests = 3'000;
#else
constexpr int kRequests = 10'000;
#endif
#else
constexpr int kRequests = 10'000;
#endif

enum class Moment { kNever, kQueued, kAccepted, kAnswering, kLastToken, kSlowReader, kDeadline };

struct Plan {
  v1::GenerateRequest request;
  Moment moment = Moment::kNever;
  int at_token = 0;
  int64_t deadline_us = 0;
};

Plan MakePlan(std::mt19937& random) {
  Plan plan;
  const uint32_t max_tokens = random() % 24;
  const uint32_t choices = random() % 4 == 0 ? 1 + random() % 3 : 1;
  plan.request.set_text(std::string(1 + random() % 150, static_cast<char>('a' + random() % 4)));
  plan.request.mutable_stop()->set_max_tokens(max_tokens);
  plan.request.mutable_stop()->set_ignore_eos(true);
  plan.request.mutable_sampling()->set_seed(random());
  plan.request.mutable_output()->set_n(choices);
  plan.moment = static_cast<Moment>(random() % 7);
  const uint32_t tokens = max_tokens * choices;
  plan.at_token =
      static_cast<int>(plan.moment == Moment::kLastToken ? tokens : random() % (tokens + 1));
  plan.deadline_us = static_cast<int64_t>(random() % 12'000);
  return plan;
}

class StormTest : public GrpcServerTest {
 protected:
  // Sends one request and does to it what is planned. Whatever came must be right.
  void Live(const Plan& plan) {
    grpc::ClientContext context;
    if (plan.moment == Moment::kDeadline) {
      context.set_deadline(std::chrono::system_clock::now() +
                           std::chrono::microseconds(plan.deadline_us));
    }
    const auto reader = stub_->Generate(&context, plan.request);
    if (plan.moment == Moment::kQueued) context.TryCancel();
    Streamed streamed;
    v1::GenerateEvent event;
    while (reader->Read(&event)) {
      EXPECT_EQ(event.sequence_number(), streamed.events.size());
      for (const v1::Token& token : event.tokens().tokens()) streamed.tokens.push_back(token);
      streamed.events.push_back(event);
      React(plan, static_cast<int>(streamed.tokens.size()), context);
    }
    streamed.status = reader->Finish();
    Check(plan, streamed);
  }

  static void React(const Plan& plan, int tokens, grpc::ClientContext& context) {
    const bool is_reached = tokens >= plan.at_token;
    switch (plan.moment) {
      case Moment::kAccepted:
        return context.TryCancel();
      case Moment::kAnswering:
      case Moment::kLastToken:
        if (is_reached) context.TryCancel();
        return;
      case Moment::kSlowReader:
        if (is_reached) std::this_thread::sleep_for(milliseconds(2));
        return;
      case Moment::kNever:
      case Moment::kQueued:
      case Moment::kDeadline:
        return;
    }
  }

  void Check(const Plan& plan, const Streamed& streamed) {
    const uint32_t choices = plan.request.output().n();
    for (uint32_t choice = 0; choice < choices; ++choice) {
      const std::vector<TokenId> ids = streamed.ids(choice);
      const SampleRow row = {
          .temperature = 1, .seed = plan.request.sampling().seed(), .choice = choice};
      EXPECT_EQ(ids, Expected(plan.request.text(), static_cast<int>(ids.size()), row));
    }
    const grpc::StatusCode code = streamed.status.error_code();
    if (code == grpc::StatusCode::OK) {
      EXPECT_EQ(streamed.tokens.size(), size_t{plan.request.stop().max_tokens()} * choices);
    } else if (plan.moment == Moment::kDeadline) {
      // Refused where the queue says that it cannot start in time.
      EXPECT_TRUE(code == grpc::StatusCode::DEADLINE_EXCEEDED ||
                  code == grpc::StatusCode::RESOURCE_EXHAUSTED)
          << code;
    } else {
      EXPECT_EQ(code, grpc::StatusCode::CANCELLED) << streamed.status.error_message();
      EXPECT_NE(plan.moment, Moment::kNever);
      EXPECT_NE(plan.moment, Moment::kSlowReader);
    }
  }
};

// Invariant 12 and case 70.
TEST_F(StormTest, CancelsAndDeadlinesAtAnyMomentLoseNothing) {
  constexpr int kClients = 24;
  ServerOptions options = TestOptions();
  options.queue.max_requests = 1000;
  options.scheduler.optimistic_admission = true;
  StartServer(options, /*blocks=*/20);
  step_us_ = 50;
  std::vector<std::thread> clients;
  for (uint32_t c = 0; c < kClients; ++c) {
    clients.emplace_back([this, c] {
      std::mt19937 random(c);
      for (int i = 0; i < (kRequests + kClients - 1) / kClients; ++i) Live(MakePlan(random));
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_TRUE(Eventually([&] { return server_->counters().live() == 0; }));
  EXPECT_TRUE(Eventually([&] { return server_->open_streams() == 0; }));
  ExpectIdle();
  const RequestCounters& counters = server_->counters();
  EXPECT_EQ(counters.accepted,
            counters.finished + counters.cancelled + counters.expired + counters.failed);
  EXPECT_GT(counters.finished, 0u);
  EXPECT_GT(counters.cancelled, 0u);
  EXPECT_GT(server_->engine().load().preemptions, 0);
}

}  // namespace
}  // namespace vitrine::server
