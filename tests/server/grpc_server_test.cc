// What a client gets: events, texts, counts, errors.
#include <gtest/gtest.h>

#include "tests/server/server_fixture.h"

namespace vitrine::server {
namespace {

TEST_F(GrpcServerTest, EventsComeAsThePromisedSequence) {
  StartServer();
  v1::GenerateRequest request = Request("hello", 12);
  request.set_client_request_id("mine");
  request.mutable_output()->set_return_prompt_token_ids(true);
  // The client keeps up: each event that it reads allows one step.
  tokens_allowed_ = 0;
  grpc::ClientContext context;
  const Streamed streamed =
      Generate(request, context, [&](const v1::GenerateEvent&) { ++tokens_allowed_; });
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

TEST_F(GrpcServerTest, TokenizeDetokenizeAndNoChatWithoutTemplate) {
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
  EXPECT_EQ(stub_->RenderChat(&third, {}, &rendered).error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
}

}  // namespace
}  // namespace vitrine::server
