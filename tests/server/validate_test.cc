#include "server/validate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "server/field_error.h"
#include "server/grpc_status.h"
#include "server/request_queue.h"
#include "tests/server/fake_runner.h"

namespace vitrine::server {
namespace {

using Message = v1::GenerateRequest;
using absl::StatusCode;

class ValidateTest : public testing::Test {
 protected:
  absl::StatusOr<GenerationRequest> Validate(const std::function<void(Message&)>& change) {
    Message message;
    message.set_text("hello");
    change(message);
    return ValidateGenerate(message, model_, limits_);
  }

  FakeTokenizer tokenizer_;
  ServedModel model_ = {.name = "fake",
                        .tokenizer = &tokenizer_,
                        .vocabulary = tokenizer_.vocabulary(),
                        .context_length = 64,
                        .kv_tokens = 1024,
                        .longest_token = LongestToken(tokenizer_)};
  RequestLimits limits_;
};

// A change that breaks a rule, the field that the error must name, and words of its text.
struct BrokenRule {
  const char* field;
  std::function<void(Message&)> change;
  const char* words = "";
};

std::vector<BrokenRule> SamplingCases() {
  const float nan = std::nanf("");
  return {
      {"sampling.temperature", [nan](Message& m) { m.mutable_sampling()->set_temperature(nan); }},
      {"sampling.temperature", [](Message& m) { m.mutable_sampling()->set_temperature(-1); },
       "[0, 100]"},
      {"sampling.temperature",
       [](Message& m) { m.mutable_sampling()->set_temperature(HUGE_VALF); }},
      {"sampling.top_k", [](Message& m) { m.mutable_sampling()->set_top_k(-2); }, "-2"},
      {"sampling.top_p", [](Message& m) { m.mutable_sampling()->set_top_p(0); }, "(0, 1]"},
      {"sampling.top_p", [](Message& m) { m.mutable_sampling()->set_top_p(1.0000001f); }},
      {"sampling.min_p", [](Message& m) { m.mutable_sampling()->set_min_p(1); }, "[0, 1)"},
      {"sampling.typical_p", [](Message& m) { m.mutable_sampling()->set_typical_p(0); }, "(0, 1]"},
      {"sampling.typical_p", [nan](Message& m) { m.mutable_sampling()->set_typical_p(nan); }},
      {"sampling.repetition_penalty",  // Case 37: 0 is not "unset".
       [](Message& m) { m.mutable_sampling()->set_repetition_penalty(0); }, "(0, inf)"},
      {"sampling.repetition_penalty",
       [](Message& m) { m.mutable_sampling()->set_repetition_penalty(-1); }},
      {"sampling.repetition_penalty",
       [nan](Message& m) { m.mutable_sampling()->set_repetition_penalty(nan); }},
      {"sampling.presence_penalty",
       [](Message& m) { m.mutable_sampling()->set_presence_penalty(3); }, "[-2, 2]"},
      {"sampling.frequency_penalty",
       [](Message& m) { m.mutable_sampling()->set_frequency_penalty(-2.1f); }, "[-2, 2]"},
      {"sampling.penalty_window", [](Message& m) { m.mutable_sampling()->set_penalty_window(0); },
       "-1 or at least 1"},
      {"sampling.penalty_window", [](Message& m) { m.mutable_sampling()->set_penalty_window(-2); }},
  };
}

// Case 43.
std::vector<BrokenRule> TokenListCases() {
  static constexpr int kVocabulary = 270;
  const auto bias = [](uint32_t id, float value) {
    return [id, value](Message& m) {
      v1::LogitBias& entry = *m.mutable_sampling()->add_logit_bias();
      entry.set_token_id(id);
      entry.set_bias(value);
    };
  };
  const auto ban_below = [](uint32_t end) {
    return [end](Message& m) {
      for (uint32_t id = 0; id < end; ++id) m.mutable_sampling()->add_banned_token_ids(id);
    };
  };
  return {
      {"sampling.logit_bias", bias(kVocabulary, 1), "not below the vocabulary of 270"},
      {"sampling.logit_bias", bias(1u << 31, 1), "2147483648"},
      {"sampling.logit_bias", bias(5, std::nanf("")), "finite"},
      {"sampling.logit_bias", bias(5, -HUGE_VALF), "token 5 must be finite, is -inf"},
      {"sampling.logit_bias",
       [](Message& m) {
         for (int i = 0; i < 1025; ++i) m.mutable_sampling()->add_logit_bias();
       },
       "at most 1024 entries, are 1025"},
      {"sampling.logit_bias",
       [bias](Message& m) {
         for (const uint32_t id : {7u, 3u, 7u}) bias(id, 1)(m);
       },
       "token 7 comes twice"},
      {"sampling.allowed_token_ids",
       [](Message& m) { m.mutable_sampling()->add_allowed_token_ids(kVocabulary); }},
      {"sampling.banned_token_ids",
       [](Message& m) { m.mutable_sampling()->add_banned_token_ids(kVocabulary); }},
      {"sampling.banned_token_ids", ban_below(kVocabulary), "no token is left"},
      {"sampling.banned_token_ids",
       [](Message& m) {
         for (int i = 0; i <= kVocabulary; ++i) m.mutable_sampling()->add_banned_token_ids(1);
       },
       "at most 270 ids, are 271"},
      {"sampling.allowed_token_ids",
       [](Message& m) {
         for (const uint32_t id : {4u, 9u, 4u}) m.mutable_sampling()->add_allowed_token_ids(id);
         for (const uint32_t id : {9u, 5u, 4u}) m.mutable_sampling()->add_banned_token_ids(id);
       },
       "no token is left"},
      {"stop.min_tokens",  // Only what would end the answer is allowed.
       [](Message& m) {
         m.mutable_sampling()->add_allowed_token_ids(268);  // The end token.
         m.mutable_stop()->set_min_tokens(1);
       },
       "no token is left that does not end"},
  };
}

std::vector<BrokenRule> OtherCases() {
  return {
      {"stop.min_tokens",
       [](Message& m) {
         m.mutable_stop()->set_max_tokens(3);
         m.mutable_stop()->set_min_tokens(4);
       },
       "is 4, at most 3 are generated"},
      {"stop.min_tokens", [](Message& m) { m.mutable_stop()->set_min_tokens(59); },
       "is 59, at most 58 fit the context"},
      {"stop.min_tokens", [](Message& m) { m.mutable_stop()->set_min_tokens(0x7fffffff); }},
      {"stop.stop_strings", [](Message& m) { m.mutable_stop()->add_stop_strings(""); }, "1 to 256"},
      {"stop.stop_strings",
       [](Message& m) { m.mutable_stop()->add_stop_strings(std::string(257, 'x')); }, "257"},
      {"stop.stop_strings",
       [](Message& m) {
         for (int i = 0; i < 17; ++i) m.mutable_stop()->add_stop_strings("x");
       },
       "at most 16, are 17"},
      {"stop.stop_token_ids", [](Message& m) { m.mutable_stop()->add_stop_token_ids(20'000); },
       "20000"},
      {"stop.time_limit", [](Message& m) { m.mutable_stop()->mutable_time_limit(); }},
      {"stop.time_limit",
       [](Message& m) { m.mutable_stop()->mutable_time_limit()->set_seconds(-1); }},
      {"output.logprobs", [](Message& m) { m.mutable_output()->set_logprobs(21); }, "[0, 20]"},
      {"output.logprobs", [](Message& m) { m.mutable_output()->set_logprobs(0xffffffffu); }},
      {"output.logprobs_mode",
       [](Message& m) { m.mutable_output()->set_logprobs_mode(v1::LOGPROBS_MODE_RAW); },
       "needs output.logprobs"},
      {"output.logprobs_mode",
       [](Message& m) {
         m.mutable_output()->set_logprobs(1);
         m.mutable_output()->set_logprobs_mode(static_cast<v1::LogprobsMode>(7));
       },
       "not a known mode"},
      {"output.prompt_logprobs", [](Message& m) { m.mutable_output()->set_prompt_logprobs(21); },
       "[0, 20]"},
      {"output.n", [](Message& m) { m.mutable_output()->set_n(0); }, "[1, 8]"},
      {"output.n", [](Message& m) { m.mutable_output()->set_n(1'000'000); }, "[1, 8]"},
      {"stop.stop_strings",
       [](Message& m) {
         m.mutable_output()->set_return_token_ids_only(true);
         m.mutable_stop()->add_stop_strings("x");
       }},
      {"cache_salt", [](Message& m) { m.set_cache_salt(std::string(65, 's')); }},
      {"client_request_id", [](Message& m) { m.set_client_request_id("two\nlines"); }},
      {"client_request_id", [](Message& m) { m.set_client_request_id(std::string(129, 'c')); }},
      {"text", [](Message& m) { m.set_text("ab\xFF"); }, "byte 2"},
      {"text", [](Message& m) { m.set_text(std::string(1 << 20, 'x')); }, "at most 64"},
      {"prompt", [](Message& m) { m.set_text(std::string(64, 'x')); }, "65 tokens"},
      {"prompt", [](Message& m) { m.set_text(std::string(63, 'x')); }, "no room"},
      {"prompt", [](Message& m) { m.clear_text(); }},
      {"token_ids", [](Message& m) { m.mutable_token_ids(); }},
      {"token_ids.ids[1]",
       [](Message& m) {
         m.mutable_token_ids()->add_ids(5);
         m.mutable_token_ids()->add_ids(1'000'000);
       }},
      {"parse_special",
       [](Message& m) {
         m.mutable_token_ids()->add_ids(5);
         m.set_parse_special(true);
       }},
  };
}

TEST_F(ValidateTest, EachBrokenRuleNamesItsField) {
  for (const auto& cases : {SamplingCases(), TokenListCases(), OtherCases()}) {
    for (const BrokenRule& c : cases) {
      const absl::Status status = Validate(c.change).status();
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.field;
      const std::optional<FieldViolation> violation = ViolationOf(status);
      ASSERT_TRUE(violation.has_value()) << status;
      EXPECT_EQ(violation->field, c.field);
      EXPECT_EQ(violation->field + ": " + violation->rule, status.message());
      EXPECT_NE(std::string(status.message()).find(c.words), std::string::npos) << status;
    }
  }
}

TEST_F(ValidateTest, SamplingFieldsBecomeNative) {
  ASSERT_EQ(tokenizer_.vocabulary(), 270);
  const auto request = Validate([](Message& m) {
    auto& s = *m.mutable_sampling();
    s.set_typical_p(0.9f);
    s.set_repetition_penalty(1.2f);
    s.set_presence_penalty(-0.5f);
    s.set_frequency_penalty(2);
    s.set_penalty_window(7);
    for (const uint32_t id : {9u, 4u}) {
      v1::LogitBias& entry = *s.add_logit_bias();
      entry.set_token_id(id);
      entry.set_bias(0.5f * static_cast<float>(id));
    }
    for (const uint32_t id : {8u, 3u, 8u}) s.add_allowed_token_ids(id);
    for (const uint32_t id : {6u, 3u, 3u}) s.add_banned_token_ids(id);
    m.mutable_stop()->set_min_tokens(5);
    for (const uint32_t id : {20u, 10u}) m.mutable_stop()->add_stop_token_ids(id);
  });
  ASSERT_TRUE(request.ok()) << request.status();
  const SamplingParams& sampling = request->sampling;
  EXPECT_EQ(sampling.typical_p, 0.9f);
  EXPECT_EQ(sampling.repetition_penalty, 1.2f);
  EXPECT_EQ(sampling.presence_penalty, -0.5f);
  EXPECT_EQ(sampling.frequency_penalty, 2.0f);
  EXPECT_EQ(sampling.penalty_window, 7);
  ASSERT_EQ(sampling.logit_bias.size(), 2u);
  EXPECT_EQ(sampling.logit_bias[0].token_id, 4);
  EXPECT_EQ(sampling.logit_bias[0].bias, 2.0f);
  EXPECT_EQ(sampling.logit_bias[1].bias, 4.5f);
  EXPECT_EQ(sampling.allowed, (std::vector<TokenId>{3, 8}));
  EXPECT_EQ(sampling.banned, (std::vector<TokenId>{3, 6}));
  EXPECT_EQ(request->stop.min_tokens, 5);
  EXPECT_EQ(request->stop.withheld, (std::vector<TokenId>{10, 20, 268}));
}

// Values that broke other servers, by their number in the bug log of our reference shelf: what is
// wrong is refused, what is merely odd is honoured.
struct BugLogCase {
  int number;
  std::function<void(v1::SamplingOptions&, v1::StopOptions&)> change;
  bool is_right;
};

std::vector<BugLogCase> TemperatureAndPenaltyCases() {
  const float nan = std::nanf("");
  const auto temperature = [](float value) {
    return [value](v1::SamplingOptions& s, v1::StopOptions&) { s.set_temperature(value); };
  };
  const auto repetition = [](float value) {
    return [value](v1::SamplingOptions& s, v1::StopOptions&) { s.set_repetition_penalty(value); };
  };
  return {
      {35, temperature(nan), false},
      {35, temperature(HUGE_VALF), false},
      {35, temperature(-HUGE_VALF), false},
      {35, temperature(-1), false},
      {35, temperature(-0.0f), true},
      {36, temperature(1e-12f), true},
      {36, temperature(1e-5f), true},
      {36, temperature(3e-4f), true},
      {36, temperature(1e-38f), true},
      {37, repetition(0), false},
      {37, repetition(-0.0f), false},
      {37, repetition(-1), false},
      {37, repetition(nan), false},
      {37, repetition(HUGE_VALF), false},
      {37, repetition(1e-30f), true},
      {37, repetition(1e30f), true},
      {37, [](auto& s, auto&) { s.set_presence_penalty(-0.0f); }, true},
  };
}

std::vector<BugLogCase> FilterCases() {
  const float nan = std::nanf("");
  const auto top_k = [](int32_t value) {
    return [value](v1::SamplingOptions& s, v1::StopOptions&) { s.set_top_k(value); };
  };
  const auto top_p = [](float value) {
    return [value](v1::SamplingOptions& s, v1::StopOptions&) { s.set_top_p(value); };
  };
  const auto bias = [](uint32_t id, float value) {
    return [id, value](v1::SamplingOptions& s, v1::StopOptions&) {
      s.add_logit_bias()->set_token_id(id);
      s.mutable_logit_bias(0)->set_bias(value);
    };
  };
  const auto ban = [](uint32_t begin) {
    return [begin](v1::SamplingOptions& s, v1::StopOptions&) {
      for (uint32_t id = begin; id < 270; ++id) s.add_banned_token_ids(id);
    };
  };
  return {
      {38, top_k(9'999'999), true},
      {38, top_k(-1), true},
      {38, top_k(-2), false},
      {40, top_p(0), false},
      {40, top_p(1e-9f), true},
      {40, top_p(1), true},
      {40, top_p(1.0000001f), false},
      {40, top_p(nan), false},
      {40, [](auto& s, auto&) { s.set_typical_p(0); }, false},
      {40, [](auto& s, auto&) { s.set_typical_p(1e-9f); }, true},
      {43, bias(269, 1), true},
      {43, bias(270, 1), false},
      {43, bias(0x80000000u, 1), false},
      {43, bias(0xffffffffu, 1), false},
      {43, bias(5, nan), false},
      {43, bias(5, 1e9f), true},
      {43, bias(5, -HUGE_VALF), false},
      {43,
       [](auto& s, auto&) {
         for (uint32_t id = 0; id < 270; ++id) s.add_logit_bias()->set_token_id(id);
       },
       true},
      {43, ban(0), false},
      {43, ban(1), true},
      {44, [](auto&, auto& stop) { stop.add_stop_token_ids(270 + 20'000); }, false},
      {44, [](auto&, auto& stop) { stop.add_stop_token_ids(269); }, true},
      {46, [](auto&, auto& stop) { stop.set_max_tokens(0); }, true},
      {46, [](auto&, auto& stop) { stop.set_max_tokens(0x7fffffff); }, true},
      {47, [](auto&, auto& stop) { stop.set_min_tokens(0x7fffffff); }, false},
      {47, [](auto&, auto& stop) { stop.set_min_tokens(58); }, true},
  };
}

TEST_F(ValidateTest, BugLogCases) {
  for (const auto& cases : {TemperatureAndPenaltyCases(), FilterCases()}) {
    for (size_t i = 0; i < cases.size(); ++i) {
      const absl::Status status = Validate([&](Message& m) {
                                    cases[i].change(*m.mutable_sampling(), *m.mutable_stop());
                                  }).status();
      EXPECT_EQ(status.ok(), cases[i].is_right) << "case " << cases[i].number << ", row " << i;
      if (!status.ok()) {
        EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      }
    }
  }
}

TEST_F(ValidateTest, PromptLogprobsAreLimitedByWhatOneMessageMayTake) {  // Case 42.
  model_.context_length = 200'000;
  model_.kv_tokens = 200'000;
  const auto ask = [&](size_t prompt, uint32_t alternatives) {
    return Validate([&](Message& m) {
             m.set_text(std::string(prompt - 1, 'x'));
             m.mutable_output()->set_prompt_logprobs(alternatives);
           })
        .status();
  };
  EXPECT_TRUE(ask(100'000, 0).ok());
  EXPECT_TRUE(ask(1000, 20).ok());
  const absl::Status refused = ask(100'000, 20);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(RetryAfterMicros(refused).has_value());
  // 24 + 20 * (20 + 6) bytes for each token.
  EXPECT_EQ(refused.message(),
            "output.prompt_logprobs: 100000 tokens may take 54400000 bytes, at most 4194304 are "
            "sent");
}

TEST_F(ValidateTest, AnUnsetSeedIsFresh) {  // Case 51.
  const auto seed = [&] { return Validate([](Message&) {})->sampling.seed; };
  EXPECT_NE(seed(), seed());
  EXPECT_EQ(Validate([](Message& m) { m.mutable_sampling()->set_seed(0); })->sampling.seed, 0u);
}

TEST_F(ValidateTest, UnknownFieldsAreRefusedAtAnyDepth) {
  EXPECT_FALSE(Validate([](Message& m) {
                 m.GetReflection()->MutableUnknownFields(&m)->AddVarint(999, 1);
               }).ok());
  const absl::Status nested = Validate([](Message& m) {
                                auto& s = *m.mutable_sampling();
                                s.GetReflection()->MutableUnknownFields(&s)->AddVarint(77, 1);
                              }).status();
  EXPECT_NE(std::string(nested.message()).find("77"), std::string::npos);
}

TEST_F(ValidateTest, LengthsOfCase55) {
  struct Case {
    int prompt;  // Tokens, begin token included.
    std::optional<uint32_t> max_tokens;
    int length;  // 0: refused.
    bool is_context;
  };
  const std::vector<Case> cases = {
      {62, 0, 62, false},          {62, 1, 63, false},          {62, 2, 64, false},
      {62, 3, 64, true},           {63, 0, 63, false},          {63, 1, 64, false},
      {63, 2, 64, true},           {63, {}, 64, true},          {64, 0, 64, false},
      {64, 1, 0, false},           {64, {}, 0, false},          {65, 0, 0, false},
      {10, 0x7fffffffu, 64, true}, {10, 0xffffffffu, 64, true},
  };
  for (const Case& c : cases) {
    const auto request = Validate([&](Message& m) {
      m.set_text(std::string(static_cast<size_t>(c.prompt - 1), 'x'));
      if (c.max_tokens) m.mutable_stop()->set_max_tokens(*c.max_tokens);
    });
    EXPECT_EQ(request.ok(), c.length > 0) << c.prompt;
    if (!request.ok()) continue;
    EXPECT_EQ(request->stop.max_length, c.length) << c.prompt;
    EXPECT_EQ(request->stop.max_length_is_context, c.is_context) << c.prompt;
  }
}

TEST_F(ValidateTest, APoolSmallerThanTheContext) {
  model_.kv_tokens = 32;
  const auto ask = [&](int prompt, std::optional<uint32_t> max_tokens) {
    return Validate([&](Message& m) {
      m.set_text(std::string(static_cast<size_t>(prompt - 1), 'x'));
      if (max_tokens) m.mutable_stop()->set_max_tokens(*max_tokens);
    });
  };
  EXPECT_EQ(ask(20, 13)->stop.max_length, 33);  // The last token is never stored.
  EXPECT_EQ(ask(20, 14).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ask(20, {})->stop.max_length, 33);
  EXPECT_EQ(ask(33, {}).status().code(), StatusCode::kResourceExhausted);
}

TEST_F(ValidateTest, ChoicesShareTheWholeBlocksOfThePrompt) {
  limits_.max_running_sequences = 4;
  model_.kv_tokens = 96;
  const auto ask = [&](uint32_t choices, std::optional<uint32_t> max_tokens) {
    return Validate([&](Message& m) {
      m.set_text(std::string(32, 'x'));  // 33 tokens: two blocks are shared.
      m.mutable_output()->set_n(choices);
      if (max_tokens) m.mutable_stop()->set_max_tokens(*max_tokens);
    });
  };
  EXPECT_EQ(ask(4, 16)->num_choices, 4);  // 2 shared, one of its own for each: 6 blocks.
  const absl::Status refused = ask(4, 17).status();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.message(),
            "prompt and answers need 160 tokens of key and value cache, there are 96");
  EXPECT_EQ(ask(4, {})->stop.max_length, 49);
  EXPECT_EQ(ask(2, {})->stop.max_length, 64);
  EXPECT_EQ(ask(2, 31)->stop.max_length, 64);
  // As many as fit the protocol, but not the server: it can never run them.
  EXPECT_EQ(ask(5, 1).status().message(),
            "output.n of 5 needs as many sequences at once, there are 4");
  EXPECT_EQ(ask(5, 1).status().code(), StatusCode::kResourceExhausted);
}

TEST_F(ValidateTest, OtherStatuses) {
  EXPECT_EQ(Validate([](Message& m) { m.set_model("other"); }).status().code(),
            StatusCode::kNotFound);
  EXPECT_TRUE(Validate([](Message& m) { m.set_model("fake"); }).ok());
  EXPECT_EQ(Validate([](Message& m) { m.mutable_attention(); }).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(ValidateTest, EmptyTextStartsFromTheBeginToken) {  // Case 54.
  const auto request = Validate([](Message& m) { m.set_text(""); });
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->prompt, std::vector<TokenId>{tokenizer_.bos_id()});
}

TEST(GrpcStatus, TextAndDetailsAreBounded) {  // Case 81.
  const grpc::Status status =
      ToGrpcStatus(FieldError(std::string(5000, 'f'), std::string(100'000, 'x')));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message().size(), 512u);
  EXPECT_LE(status.error_details().size(), 4096u);
}

TEST(RequestQueue, BothCapsAndTheDeadline) {  // Case 87.
  RequestCounters counters;
  RequestQueue queue({.max_requests = 2, .max_prompt_tokens = 10}, counters);
  const auto request = [](size_t tokens, int64_t deadline_us = kNever) {
    GenerationRequest native;
    native.prompt.resize(tokens);
    native.deadline_us = deadline_us;
    return std::make_shared<ActiveRequest>("r", std::move(native), nullptr);
  };
  const auto first = request(6);
  const auto second = request(4);
  EXPECT_TRUE(queue.Push(first, 0).ok());
  absl::Status refused = queue.Push(request(5), 0);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(RetryAfterMicros(refused).has_value());
  EXPECT_TRUE(queue.Push(second, 0).ok());
  EXPECT_EQ(queue.Push(request(0), 0).code(), StatusCode::kResourceExhausted);
  // One starts every 100 ms: with one waiting, a deadline in 50 ms cannot be met.
  queue.Leave(*first, /*started=*/true, 1'000'000);
  EXPECT_TRUE(queue.Push(first, 0).ok());
  queue.Leave(*second, /*started=*/true, 1'100'000);
  EXPECT_FALSE(queue.Push(request(1, 1'150'000), 1'100'000).ok());
  EXPECT_TRUE(queue.Push(request(1, 1'250'000), 1'100'000).ok());
  // That a passed one cannot be met either is not a matter of load.
  EXPECT_EQ(queue.Push(request(1, 1'100'000), 1'100'000).code(), StatusCode::kDeadlineExceeded);
  queue.Close(absl::UnavailableError("first"));
  queue.Close(absl::UnavailableError("second"));
  EXPECT_EQ(queue.Push(request(1), 0), absl::UnavailableError("first"));
  EXPECT_EQ(counters.accepted, 4u);
  EXPECT_EQ(counters.refused, 5u);
}

}  // namespace
}  // namespace vitrine::server
