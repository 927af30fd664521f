#include "server/answer_assembler.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/server/fake_runner.h"

namespace vitrine::server {
namespace {

class RecordingSink final : public TokenSink {
 public:
  void OnToken(const AnswerToken& token) override {
    EXPECT_EQ(FindInvalidUtf8(token.text), std::string_view::npos);
    positions.push_back(token.position);
    ids.push_back(token.id);
    bytes += token.bytes;
    text += token.text;
    texts.push_back(token.text);
    scores.push_back(token.score);
    if (token.score.logprobs != nullptr) logprobs.push_back(*token.score.logprobs);
  }
  void OnPromptLogprobs(std::span<const PromptToken> prompt) override {
    for (const PromptToken& token : prompt) {
      prompt_logprobs.push_back(token.score.logprobs == nullptr ? 1.0f
                                                                : token.score.logprobs->logprob);
    }
  }
  void OnEnd(const AnswerEnd& /*end*/) override {}

  std::vector<int64_t> positions;
  std::vector<TokenId> ids;
  std::vector<std::string> texts;
  std::vector<TokenScore> scores;  // Their pointers are dead.
  std::vector<TokenLogprobs> logprobs;
  std::vector<float> prompt_logprobs;
  std::string bytes;
  std::string text;
};

struct Answer {
  RecordingSink sink;
  ChoiceEnd end;
  std::string text() const { return sink.text + end.tail_text; }
};

Answer Assemble(const GenerationRequest& request, const std::vector<TokenId>& ids,
                ChoiceEnding engine_end = {.reason = FinishReason::kMaxTokens}) {
  static const FakeTokenizer tokenizer;
  Answer answer;
  AnswerAssembler assembler(tokenizer, request, 0);
  for (const TokenId id : ids) {
    std::unique_ptr<TokenLogprobs> logprobs;
    if (request.output.logprobs >= 0) {
      logprobs = std::make_unique<TokenLogprobs>();
      logprobs->logprob = -static_cast<float>(id);
      logprobs->top_count = 1;
      logprobs->top_ids[0] = id;
    }
    if (!assembler.Append(id, std::move(logprobs), answer.sink)) break;
  }
  answer.end = assembler.Finish(engine_end, answer.sink);
  return answer;
}

std::vector<TokenId> BytesOf(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  return ids;
}

std::string Decode(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.Append(bytes);
  return text + stream.Flush();
}

GenerationRequest WithStops(std::vector<std::string> stops, bool include = false) {
  GenerationRequest request;
  request.prompt = {1, 2, 3};
  request.stop.stop_strings = std::move(stops);
  request.stop.include_stop_string = include;
  return request;
}

TEST(AnswerAssembler, NoStopStringBeginsInTheFirstMinTokens) {
  GenerationRequest request = WithStops({"ab", "b"});
  const std::vector<TokenId> ids = BytesOf("xabyab");
  struct Case {
    int min_tokens;
    const char* text;
  };
  // "ab" would begin in the second token and end in the third, which alone is "b".
  for (const Case& c : std::vector<Case>{
           {0, "x"}, {1, "x"}, {2, "xa"}, {3, "xaby"}, {4, "xaby"}, {5, "xabya"}, {6, "xabyab"}}) {
    request.stop.min_tokens = c.min_tokens;
    const Answer answer = Assemble(request, ids);
    EXPECT_EQ(answer.text(), c.text) << c.min_tokens;
    EXPECT_GE(answer.end.completion_tokens, c.min_tokens);
    EXPECT_EQ(answer.end.stop_string >= 0, c.min_tokens < 6) << c.min_tokens;
  }
}

// Whatever waits and whatever is discarded: a token carries its own log-probabilities.
TEST(AnswerAssembler, LogprobsStayWithTheirTokens) {
  for (const std::vector<std::string>& stops :
       std::vector<std::vector<std::string>>{{}, {"cde"}, {"cdx", "cdef", "fgg"}, {"e"}, {"z"}}) {
    GenerationRequest request = WithStops(stops);
    request.output.logprobs = 1;
    const Answer answer = Assemble(request, BytesOf("abcdefgh"));
    ASSERT_EQ(answer.sink.logprobs.size(), answer.sink.ids.size());
    for (size_t i = 0; i < answer.sink.ids.size(); ++i) {
      EXPECT_EQ(answer.sink.logprobs[i].logprob, -static_cast<float>(answer.sink.ids[i]));
      ASSERT_EQ(answer.sink.scores[i].top_bytes.size(), 1u);
      EXPECT_EQ(answer.sink.scores[i].top_bytes[0],
                std::string(1, static_cast<char>(answer.sink.ids[i])));
    }
  }
}

TEST(AnswerAssembler, RowsOfLogitsWithoutATokenHaveNoBytes) {
  const TokenId beyond = FakeTokenizer().vocabulary() + 3;
  GenerationRequest request = WithStops({"zz"});
  request.output.logprobs = 1;
  const Answer answer = Assemble(request, {'a', beyond, 'b'});
  EXPECT_EQ(answer.text(), "ab");
  EXPECT_EQ(answer.sink.ids, (std::vector<TokenId>{'a', beyond, 'b'}));
  EXPECT_TRUE(answer.sink.scores[1].top_bytes[0].empty());
}

TEST(AnswerAssembler, ThePromptsFirstTokenHasNoScore) {
  static const FakeTokenizer tokenizer;
  const GenerationRequest request = WithStops({});
  const AnswerAssembler assembler(tokenizer, request, 0);
  std::vector<TokenLogprobs> logprobs(2);
  logprobs[0].logprob = -5.0f;
  logprobs[1].logprob = -6.0f;
  RecordingSink sink;
  assembler.ScorePrompt(logprobs, sink);
  EXPECT_EQ(sink.prompt_logprobs, (std::vector<float>{1.0f, -5.0f, -6.0f}));
}

TEST(AnswerAssembler, PositionsCountAndHash) {
  const Answer answer = Assemble(WithStops({}), {7, 8});
  EXPECT_EQ(answer.sink.positions, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(answer.end.completion_tokens, 2);
  // FNV-1a of 07 00 00 00 08 00 00 00.
  uint64_t hash = 0xcbf29ce484222325u;
  for (const uint64_t byte : {7, 0, 0, 0, 8, 0, 0, 0}) hash = (hash ^ byte) * 0x100000001b3u;
  TokenHash of_ids;
  for (const TokenId id : answer.sink.ids) of_ids.Add(id);
  EXPECT_EQ(of_ids.value(), hash);
}

TEST(AnswerAssembler, EndInsideACharacterGivesOneReplacementAndTheExactBytes) {
  const Answer answer = Assemble(WithStops({}), BytesOf("a\xF0\x9F"));
  EXPECT_EQ(answer.sink.text, "a");
  EXPECT_EQ(answer.end.tail_text, "\xEF\xBF\xBD");
  EXPECT_EQ(answer.end.tail_bytes, "\xF0\x9F");
  EXPECT_EQ(answer.sink.bytes, "a\xF0\x9F");
}

TEST(AnswerAssembler, HeldBeginningOfAStopComesWithTheEnd) {
  const Answer answer = Assemble(WithStops({"stop"}), BytesOf("a sto"));
  EXPECT_EQ(answer.sink.text, "a ");
  EXPECT_EQ(answer.end.tail_text, "sto");
  EXPECT_EQ(answer.end.tail_bytes, "sto");
  EXPECT_EQ(answer.end.reason, FinishReason::kMaxTokens);
}

TEST(AnswerAssembler, TokensAfterTheMatchDoNotExist) {
  const FakeTokenizer tokenizer;
  std::vector<TokenId> ids = BytesOf("a stop");
  ids.push_back('x');
  const Answer answer = Assemble(WithStops({"stop"}), ids, {.reason = FinishReason::kMaxTokens});
  EXPECT_EQ(answer.text(), "a ");
  EXPECT_EQ(answer.sink.bytes, "a stop");
  EXPECT_EQ(answer.end.completion_tokens, 6);
  EXPECT_EQ(answer.end.reason, FinishReason::kStopString);
  EXPECT_EQ(answer.end.stop_string, 0);
  EXPECT_EQ(answer.end.answer_bytes, 2);
}

TEST(AnswerAssembler, IncludeKeepsTheStopStringAndNothingAfterIt) {
  const Answer answer = Assemble(WithStops({"to"}, /*include=*/true), BytesOf("stop"));
  EXPECT_EQ(answer.text(), "sto");
  EXPECT_EQ(answer.end.answer_bytes, 3);
}

// While "ab" may become "abc", later tokens wait; when it does not, they are discarded.
TEST(AnswerAssembler, TokensAfterACandidateWait) {
  Answer answer = Assemble(WithStops({"ab", "abcd"}), BytesOf("xabce"));
  EXPECT_EQ(answer.sink.bytes, "xab");
  EXPECT_EQ(answer.end.completion_tokens, 3);
  EXPECT_EQ(answer.end.stop_string, 0);
  answer = Assemble(WithStops({"ab", "abcd"}), BytesOf("xabcd"));
  EXPECT_EQ(answer.sink.bytes, "xabcd");
  EXPECT_EQ(answer.end.stop_string, 1);
  // The end of the answer decides too.
  answer = Assemble(WithStops({"ab", "abcd"}), BytesOf("xabc"));
  EXPECT_EQ(answer.sink.bytes, "xab");
  EXPECT_EQ(answer.end.reason, FinishReason::kStopString);
}

TEST(AnswerAssembler, ReplacementCharacterMatchesOnlyItsRealBytes) {
  EXPECT_EQ(Assemble(WithStops({"\xEF\xBF\xBD"}), BytesOf("a\xFF"
                                                          "b"))
                .end.reason,
            FinishReason::kMaxTokens);
  EXPECT_EQ(Assemble(WithStops({"\xEF\xBF\xBD"}), BytesOf("a\xEF\xBF\xBD")).end.reason,
            FinishReason::kStopString);
}

TEST(AnswerAssembler, IdsOnly) {
  GenerationRequest request = WithStops({});
  request.output.return_token_ids_only = true;
  const Answer answer = Assemble(request, {65, 66});
  EXPECT_EQ(answer.sink.ids, (std::vector<TokenId>{65, 66}));
  EXPECT_EQ(answer.sink.bytes, "");
  EXPECT_EQ(answer.text(), "");
}

TEST(AnswerAssembler, ACancelledAnswerIsNotFinishedByAMatch) {
  const Answer answer =
      Assemble(WithStops({"stop"}), BytesOf("stop"), {.ending = Ending::kCancelled});
  EXPECT_EQ(answer.end.ending, Ending::kCancelled);
}

// Invariants 2 to 4: text is a function of the decoded bytes and the stop strings alone, wherever
// tokens cut characters and stop strings, and wherever max_tokens cuts the answer.
TEST(AnswerAssembler, TextEqualsDecodedIdsMinusTheStopForAnyTokens) {
  const FakeTokenizer tokenizer;
  std::mt19937 random(3);
  const std::vector<std::vector<std::string>> stop_sets = {
      {},           {"stop"},           {"stop", "stop now"},
      {"\x9F\x98"}, {"\xB8\xAD", "st"}, {"op", "stop n", "t\xC3\xA9"},
      {"\n"},       {"aab", "ab"},      {std::string("\0", 1)}};
  for (int round = 0; round < 20'000; ++round) {
    std::vector<TokenId> ids(random() % 24);
    for (TokenId& id : ids) {
      constexpr std::string_view kBytes("ab \n\0st\x80\xC3\xA9\xE4\xF0\xFF", 13);
      id = random() % 2 == 0 ? static_cast<TokenId>(256 + random() % 12)
                             : static_cast<uint8_t>(kBytes[random() % kBytes.size()]);
    }
    const auto& stops = stop_sets[random() % stop_sets.size()];
    const bool include = random() % 2 == 0;
    const Answer answer = Assemble(WithStops(stops, include), ids);
    std::string kept = answer.sink.bytes;  // As a client would decode the ids.
    ASSERT_EQ(kept, tokenizer.Decode(answer.sink.ids));
    std::string expected = tokenizer.Decode(ids);
    size_t first = std::string::npos;
    std::string matched;
    for (const std::string& stop : stops) {
      const size_t at = expected.find(stop);
      if (at < first || (at == first && at != std::string::npos && stop.size() > matched.size())) {
        first = at;
        matched = stop;
      }
    }
    if (first != std::string::npos) expected.resize(first + (include ? matched.size() : 0));
    ASSERT_EQ(answer.text(), Decode(expected)) << round;
    ASSERT_EQ(kept.substr(0, static_cast<size_t>(answer.end.answer_bytes)), expected);
    ASSERT_EQ(answer.end.completion_tokens, static_cast<int>(answer.sink.ids.size()));
    if (first == std::string::npos) {
      ASSERT_EQ(answer.sink.ids.size(), ids.size());
      ASSERT_TRUE(expected.ends_with(answer.end.tail_bytes));
    } else {
      // The last token holds the end of the match: none after it exists.
      ASSERT_GE(kept.size(), first + matched.size());
      const std::string_view last = tokenizer.TokenBytes(answer.sink.ids.back());
      ASSERT_LT(kept.size() - last.size(), first + matched.size());
    }
  }
}

}  // namespace
}  // namespace vitrine::server
