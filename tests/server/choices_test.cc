// Requests for several answers: each is what it is alone, ends on its own, and the request ends
// when all have.
#include <gtest/gtest.h>

#include <map>

#include "tests/server/server_fixture.h"

namespace vitrine::server {
namespace {

v1::GenerateRequest Dice(v1::GenerateRequest request, uint32_t choices) {
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(7);
  request.mutable_output()->set_n(choices);
  return request;
}

SampleRow Row(uint32_t choice) { return {.temperature = 1, .seed = 7, .choice = choice}; }

TEST_F(GrpcServerTest, EachChoiceDrawsFromItsOwnNumbers) {
  StartServer();
  const v1::GenerateRequest request = Dice(Request("choices", 20), 4);
  const Streamed streamed = Generate(request);
  ASSERT_TRUE(streamed.status.ok()) << streamed.status.error_message();
  TokenHash hash;
  for (uint32_t choice = 0; choice < 4; ++choice) {
    EXPECT_EQ(streamed.ids(choice), Expected("choices", 20, Row(choice))) << choice;
    for (const TokenId id : streamed.ids(choice)) hash.Add(id);
  }
  EXPECT_NE(streamed.ids(0), streamed.ids(1));
  EXPECT_EQ(streamed.done().usage().prompt_tokens(), 8u);
  EXPECT_EQ(streamed.done().usage().completion_tokens(), 80u);
  EXPECT_EQ(streamed.done().token_hash(), hash.value());
  // Choice 0 is the answer of a request for one.
  EXPECT_EQ(Generate(Dice(Request("choices", 20), 1)).ids(), streamed.ids(0));

  v1::GenerateResponse unary;
  ASSERT_TRUE(Unary(request, &unary).ok());
  ASSERT_EQ(unary.choices_size(), 4);
  for (uint32_t choice = 0; choice < 4; ++choice) {
    const v1::Choice& answer = unary.choices(static_cast<int>(choice));
    EXPECT_EQ(answer.index(), choice);
    EXPECT_EQ(answer.finished().choice(), choice);
    EXPECT_EQ(answer.bytes(), tokenizer_.Decode(streamed.ids(choice)));
  }
  EXPECT_EQ(unary.done().token_hash(), hash.value());
}

TEST_F(GrpcServerTest, ChoicesEndOnTheirOwn) {
  StartServer();
  v1::GenerateRequest request = Dice(Request("ends", 60), 8);
  // What one of them says early, and so ends it.
  const std::vector<TokenId> third = Expected("ends", 60, Row(3));
  request.mutable_stop()->add_stop_strings(tokenizer_.Decode(std::span(third).subspan(4, 2)));
  request.mutable_stop()->add_stop_token_ids(
      static_cast<uint32_t>(Expected("ends", 60, Row(5)).at(9)));
  const Streamed streamed = Generate(request);
  ASSERT_TRUE(streamed.status.ok()) << streamed.status.error_message();
  std::map<uint32_t, v1::ChoiceFinished> ends;
  std::map<uint32_t, std::string> texts;
  size_t tokens = 0;
  for (const v1::GenerateEvent& event : streamed.events) {
    for (const v1::Token& token : event.tokens().tokens()) {
      EXPECT_FALSE(ends.contains(token.choice())) << "a token after the end of its choice";
      texts[token.choice()] += token.text();
      ++tokens;
    }
    if (!event.has_choice_finished()) continue;
    const v1::ChoiceFinished& end = event.choice_finished();
    EXPECT_TRUE(ends.emplace(end.choice(), end).second);
    texts[end.choice()] += end.tail_text();
  }
  ASSERT_EQ(ends.size(), 8u);
  EXPECT_EQ(ends.at(3).reason(), v1::FINISH_REASON_STOP_STRING);
  EXPECT_LE(streamed.ids(3).size(), 6u);
  EXPECT_EQ(ends.at(5).reason(), v1::FINISH_REASON_STOP_TOKEN);
  EXPECT_LE(streamed.ids(5).size(), 9u);
  EXPECT_EQ(streamed.done().usage().completion_tokens(), tokens);
  v1::GenerateResponse unary;
  ASSERT_TRUE(Unary(request, &unary).ok());
  for (const auto& [choice, text] : texts) {
    EXPECT_EQ(unary.choices(static_cast<int>(choice)).text(), text);
    EXPECT_EQ(unary.choices(static_cast<int>(choice)).finished().reason(), ends[choice].reason());
  }
  EXPECT_EQ(unary.done().token_hash(), streamed.done().token_hash());
}

TEST_F(GrpcServerTest, CancelDeadlineAndTimeLimitCoverAllChoices) {
  StartServer();
  step_us_ = 2000;
  {
    grpc::ClientContext context;
    int tokens = 0;
    const Streamed streamed =
        Generate(Dice(Request("gone", 400), 4), context, [&](const v1::GenerateEvent& event) {
          tokens += event.tokens().tokens_size();
          if (tokens > 10) context.TryCancel();
        });
    EXPECT_EQ(streamed.status.error_code(), grpc::StatusCode::CANCELLED);
    EXPECT_TRUE(Eventually([&] { return server_->counters().cancelled == 1; }));
    ExpectIdle();
  }
  {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + milliseconds(50));
    const Streamed streamed = Generate(Dice(Request("late", 400), 4), context);
    EXPECT_EQ(streamed.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    EXPECT_TRUE(Eventually([&] { return server_->counters().live() == 0; }));
    ExpectIdle();
  }
  v1::GenerateRequest request = Dice(Request("limited", 400), 4);
  request.mutable_stop()->mutable_time_limit()->set_nanos(50'000'000);
  const Streamed streamed = Generate(request);
  ASSERT_TRUE(streamed.status.ok());
  int limited = 0;
  for (const v1::GenerateEvent& event : streamed.events) {
    if (!event.has_choice_finished()) continue;
    EXPECT_EQ(event.choice_finished().reason(), v1::FINISH_REASON_TIME_LIMIT);
    ++limited;
  }
  EXPECT_EQ(limited, 4);
}

TEST_F(GrpcServerTest, AFailedChoiceFailsItsRequestAndNoOther) {  // Case 49.
  StartServer();
  step_us_ = 1000;
  runner_->is_broken = [](const SampleRow& row) {
    return row.seed == kBrokenSeed && row.choice == 2 && row.position > 12;
  };
  std::thread neighbour(
      [&] { EXPECT_EQ(Generate(Request("fine", 40)).ids(), Expected("fine", 40)); });
  v1::GenerateRequest request = Dice(Request("broken", 40), 4);
  request.mutable_sampling()->set_seed(kBrokenSeed);
  expected_failures_ = 1;
  EXPECT_EQ(Generate(request).status.error_code(), grpc::StatusCode::INTERNAL);
  neighbour.join();
}

TEST_F(GrpcServerTest, AtShutdownEveryChoiceEnds) {
  ServerOptions options = TestOptions();
  options.drain_us = 50'000;
  StartServer(options);
  step_us_ = 2000;
  Streamed cut;
  std::thread running([&] { cut = Generate(Dice(Request("cut", 400), 3)); });
  ASSERT_TRUE(Eventually([&] { return server_->engine().load().running_sequences == 3; }));
  server_->Drain([] { return false; });
  running.join();
  ASSERT_TRUE(cut.status.ok()) << cut.status.error_message();
  int ended = 0;
  for (const v1::GenerateEvent& event : cut.events) {
    if (!event.has_choice_finished()) continue;
    EXPECT_EQ(event.choice_finished().reason(), v1::FINISH_REASON_SHUTDOWN);
    ++ended;
  }
  EXPECT_EQ(ended, 3);
}

TEST_F(GrpcServerTest, MoreChoicesThanPlacesCanNeverRun) {
  ServerOptions options = TestOptions();
  options.scheduler.max_running_sequences = 2;
  StartServer(options);
  const Streamed refused = Generate(Dice(Request("many", 4), 3));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(refused.status.error_details().empty());
  EXPECT_TRUE(Generate(Dice(Request("many", 4), 2)).status.ok());
}

}  // namespace
}  // namespace vitrine::server
