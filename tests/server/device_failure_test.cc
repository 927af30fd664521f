// A device that fails under running requests: all of them are told, nobody is served any more, and
// the process can see that it has to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/server_fixture.h"

namespace vitrine::server {
namespace {

TEST_F(GrpcServerTest, DeviceFailureEndsEveryRequestAndTheService) {
  StartServer();
  const auto health = grpc::health::v1::Health::NewStub(channel_);
  grpc::ClientContext watching;
  const auto watch = health->Watch(&watching, {});
  grpc::health::v1::HealthCheckResponse state;
  ASSERT_TRUE(watch->Read(&state));
  EXPECT_EQ(state.status(), grpc::health::v1::HealthCheckResponse::SERVING);

  // More requests than run at a time, so that some have not started when the device fails.
  constexpr size_t kClients = 24;
  step_us_ = 1000;
  expected_failures_ = kClients;
  std::atomic<int> tokens = 0;
  std::vector<Streamed> answers(kClients);
  std::vector<std::thread> clients;
  for (size_t i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      grpc::ClientContext context;
      answers[i] =
          Generate(Request("client " + std::to_string(i), 400), context,
                   [&](const v1::GenerateEvent& event) { tokens += event.tokens().tokens_size(); });
    });
  }
  ASSERT_TRUE(Eventually([&] { return tokens > 100 && server_->counters().accepted == kClients; }));
  runner_->has_failed = true;
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < kClients; ++i) {
    EXPECT_EQ(answers[i].status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(answers[i].status.error_message(), "the device that computes failed");
    // What came before the failure is right; nothing of the failed step came.
    const std::vector<TokenId> ids = answers[i].ids();
    EXPECT_EQ(ids, Expected("client " + std::to_string(i), static_cast<int>(ids.size())));
  }

  EXPECT_EQ(server_->status().code(), absl::StatusCode::kUnavailable);
  const grpc::Status late = Generate(Request("too late", 4)).status;
  EXPECT_EQ(late.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(late.error_message(), "the device that computes failed");
  ASSERT_TRUE(watch->Read(&state));
  EXPECT_EQ(state.status(), grpc::health::v1::HealthCheckResponse::NOT_SERVING);
  watching.TryCancel();
}

}  // namespace
}  // namespace vitrine::server
