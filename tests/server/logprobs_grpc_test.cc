// Log-probabilities over the wire: each with its token, in the stream and in one message.
#include <gtest/gtest.h>

#include "tests/server/server_fixture.h"

namespace vitrine::server {
namespace {

class LogprobsGrpcTest : public GrpcServerTest {
 protected:
  void ExpectScores(const std::vector<v1::Token>& tokens, const std::string& prompt, int top_count,
                    bool is_processed = false) {
    uint64_t history = 0;
    const std::vector<TokenId> ids = tokenizer_.Encode(prompt, {})->ids;
    for (const TokenId id : ids) history = ExtendHistory(history, id);
    for (const v1::Token& token : tokens) {
      const auto id = static_cast<TokenId>(token.id());
      const TokenLogprobs expected =
          FakeLogprobs(history, id, top_count, is_processed, tokenizer_.vocabulary());
      EXPECT_EQ(token.logprob(), expected.logprob);
      EXPECT_EQ(static_cast<int32_t>(token.rank()), expected.rank);
      ASSERT_EQ(token.top_size(), top_count);
      for (int i = 0; i < top_count; ++i) {
        const auto index = static_cast<size_t>(i);
        EXPECT_EQ(static_cast<TokenId>(token.top(i).id()), expected.top_ids[index]);
        EXPECT_EQ(token.top(i).bytes(), tokenizer_.TokenBytes(expected.top_ids[index]));
        EXPECT_EQ(token.top(i).logprob(), expected.top_logprobs[index]);
      }
      history = ExtendHistory(history, id);
    }
  }

  void ExpectPromptScores(const v1::Accepted& accepted, const std::string& prompt, int top_count) {
    const std::vector<TokenId> ids = tokenizer_.Encode(prompt, {})->ids;
    ASSERT_EQ(static_cast<size_t>(accepted.prompt_logprobs_size()), ids.size());
    uint64_t history = 0;
    for (int i = 0; i < accepted.prompt_logprobs_size(); ++i) {
      const v1::PromptLogprob& token = accepted.prompt_logprobs(i);
      const TokenId id = ids[static_cast<size_t>(i)];
      EXPECT_EQ(static_cast<TokenId>(token.id()), id);
      EXPECT_EQ(token.has_logprob(), i > 0);
      EXPECT_EQ(token.has_rank(), i > 0);
      if (i > 0) {
        const TokenLogprobs expected =
            FakeLogprobs(history, id, top_count, false, tokenizer_.vocabulary());
        EXPECT_EQ(token.logprob(), expected.logprob) << i;
        EXPECT_EQ(token.top_size(), top_count);
      }
      history = ExtendHistory(history, id);
    }
  }

  static std::vector<v1::Token> TokensOf(const v1::Choice& choice) {
    return {choice.tokens().begin(), choice.tokens().end()};
  }
};

TEST_F(LogprobsGrpcTest, EveryTokenCarriesItsOwn) {
  StartServer();
  for (const bool is_processed : {false, true}) {
    v1::GenerateRequest request = Request("score me", 25);
    request.mutable_output()->set_logprobs(3);
    request.mutable_output()->set_logprobs_mode(is_processed ? v1::LOGPROBS_MODE_PROCESSED
                                                             : v1::LOGPROBS_MODE_RAW);
    // A client that reads late gets several tokens in one message.
    grpc::ClientContext context;
    const Streamed streamed = Generate(request, context, [](const v1::GenerateEvent& event) {
      if (event.has_accepted()) std::this_thread::sleep_for(milliseconds(50));
    });
    ASSERT_EQ(streamed.tokens.size(), 25u);
    ExpectScores(streamed.tokens, "score me", 3, is_processed);
    v1::GenerateResponse response;
    ASSERT_TRUE(Unary(request, &response).ok());
    ASSERT_EQ(response.choices(0).tokens_size(), 25);
    ExpectScores(TokensOf(response.choices(0)), "score me", 3, is_processed);
  }
}

TEST_F(LogprobsGrpcTest, NoneUnlessAskedFor) {
  StartServer();
  const Streamed plain = Generate(Request("plain", 5));
  for (const v1::Token& token : plain.tokens) {
    EXPECT_FALSE(token.has_logprob() || token.has_rank() || token.top_size() > 0);
  }
  v1::GenerateRequest request = Request("plain", 5);
  request.mutable_output()->set_logprobs(0);
  const Streamed scored = Generate(request);
  EXPECT_EQ(scored.ids(), plain.ids());
  EXPECT_EQ(scored.done().token_hash(), plain.done().token_hash());
  for (const v1::Token& token : scored.tokens) {
    EXPECT_TRUE(token.has_logprob() && token.has_rank() && token.top_size() == 0);
  }
}

TEST_F(LogprobsGrpcTest, ATextStopDiscardsThoseBehindIt) {
  StartServer();
  v1::GenerateRequest request = Request("stop", 60);
  request.mutable_output()->set_logprobs(1);
  const std::string whole = tokenizer_.Decode(Expected("stop", 60));
  request.mutable_stop()->add_stop_strings(whole.substr(20, 2));
  const Streamed streamed = Generate(request);
  EXPECT_LT(streamed.tokens.size(), 40u);
  ExpectScores(streamed.tokens, "stop", 1);
}

TEST_F(LogprobsGrpcTest, OnlyIdsWhereOnlyIdsAreWanted) {
  StartServer();
  v1::GenerateRequest request = Request("ids", 4);
  request.mutable_output()->set_logprobs(2);
  request.mutable_output()->set_return_token_ids_only(true);
  for (const v1::Token& token : Generate(request).tokens) {
    ASSERT_EQ(token.top_size(), 2);
    EXPECT_TRUE(token.top(0).bytes().empty());
  }
}

TEST_F(LogprobsGrpcTest, ThePromptIsScoredInAccepted) {
  StartServer();
  const std::string prompt(150, 'p');                   // Several chunks.
  const Streamed plain = Generate(Request(prompt, 6));  // Its blocks are in the prefix cache now.
  v1::GenerateRequest request = Request(prompt, 6);
  request.mutable_output()->set_prompt_logprobs(2);
  request.mutable_output()->set_return_prompt_token_ids(true);
  const Streamed streamed = Generate(request);
  ASSERT_TRUE(streamed.status.ok()) << streamed.status.error_message();
  EXPECT_EQ(streamed.ids(), plain.ids());
  const v1::Accepted& accepted = streamed.events.front().accepted();
  EXPECT_EQ(accepted.prompt_token_ids_size(), 151);
  ExpectPromptScores(accepted, prompt, 2);
  EXPECT_EQ(streamed.done().usage().cached_prompt_tokens(), 0u);
  v1::GenerateResponse response;
  ASSERT_TRUE(Unary(request, &response).ok());
  ExpectPromptScores(response.accepted(), prompt, 2);
}

TEST_F(LogprobsGrpcTest, PrefillOnlyScoresThePrompt) {  // Case 46.
  StartServer();
  v1::GenerateRequest request = Request("just score", 0);
  request.mutable_output()->set_prompt_logprobs(0);
  const Streamed streamed = Generate(request);
  ASSERT_TRUE(streamed.status.ok());
  EXPECT_TRUE(streamed.tokens.empty());
  EXPECT_EQ(streamed.reason(), v1::FINISH_REASON_MAX_TOKENS);
  ExpectPromptScores(streamed.events.front().accepted(), "just score", 0);
  request.set_text("");  // The begin token alone: nothing precedes it.
  const v1::Accepted accepted = Generate(request).events.front().accepted();
  ASSERT_EQ(accepted.prompt_logprobs_size(), 1);
  EXPECT_FALSE(accepted.prompt_logprobs(0).has_logprob());
}

TEST_F(LogprobsGrpcTest, AnAnswerThatEndsBeforeItsPromptIsComputed) {
  StartServer();
  is_frozen_ = true;
  // The first holds the engine inside a step until both have run out of time.
  std::thread first([&] { Generate(Request("first", 5)); });
  ASSERT_TRUE(Eventually([&] { return server_->engine().BusyMicros() > 0; }));
  v1::GenerateRequest request = Request("second", 5);
  request.mutable_output()->set_prompt_logprobs(1);
  request.mutable_stop()->mutable_time_limit()->set_nanos(1'000'000);
  std::thread thaw([&] {
    std::this_thread::sleep_for(milliseconds(30));
    is_frozen_ = false;
  });
  const Streamed streamed = Generate(request);
  ASSERT_TRUE(streamed.status.ok());
  EXPECT_EQ(streamed.reason(), v1::FINISH_REASON_TIME_LIMIT);
  ASSERT_TRUE(streamed.events.front().has_accepted());
  EXPECT_EQ(streamed.events.front().accepted().prompt_logprobs_size(), 0);
  first.join();
  thaw.join();
}

}  // namespace
}  // namespace vitrine::server
