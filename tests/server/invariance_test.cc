// The promise of the engine on the real model, bit for bit: what a request is answered depends on
// the request alone. VITRINE_TEST_MODEL names the model file.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "server/stream_messages.h"
#include "tests/server/engine_harness.h"
#include "tests/server/real_model.h"

namespace vitrine::server {
namespace {

using Ids = std::vector<TokenId>;

constexpr int kAnswerTokens = 20;
constexpr int kChoices = 4;

// Of several lengths, greedy and drawn: a draw turns the smallest difference of a logit into
// another token sooner or later.
std::vector<GenerationRequest> Subjects(const RealModel& model) {
  const std::string story =
      "The lighthouse keeper climbed the stairs every evening, lit the lamp, and wrote one line "
      "into the book that nobody read. ";
  std::vector<GenerationRequest> requests;
  for (const std::string& prompt : {std::string("Dear Sir or Madam,"),
                                    std::string("Il était une fois, dans une forêt profonde,"),
                                    story, story + story + "Then, one night,"}) {
    for (const float temperature : {0.0f, 1.0f}) {
      GenerationRequest request;
      request.prompt = model.Encode(prompt);
      request.sampling = {.temperature = temperature, .top_p = 0.95f, .seed = 11};
      request.stop.max_length = static_cast<int>(request.prompt.size()) + kAnswerTokens;
      request.stop.ignore_eos = true;
      requests.push_back(std::move(request));
    }
  }
  return requests;
}

std::vector<GenerationRequest> Neighbours(const RealModel& model, int count) {
  const Ids text = model.Encode(
      "def fibonacci(n): return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2) # "
      "北京是中国的首都 "
      "and SELECT name FROM people WHERE age > 30 ORDER BY name;");
  VITRINE_CHECK_LE(size_t{46}, text.size());  // Of the longest neighbour below.
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < count; ++i) {
    GenerationRequest request;
    const auto skip = static_cast<std::ptrdiff_t>(i) % 7;
    request.prompt.assign(text.begin() + skip,
                          text.begin() + skip + 1 + (static_cast<std::ptrdiff_t>(i) * 5) % 40);
    request.sampling = {.temperature = 0.8f, .seed = static_cast<uint64_t>(i)};
    request.stop.max_length = static_cast<int>(request.prompt.size()) + 4 + i % 9;
    request.stop.ignore_eos = true;
    requests.push_back(std::move(request));
  }
  return requests;
}

EngineOptions Options(int running, int chunk) {
  return {.scheduler = {.max_running_sequences = running,
                        .max_step_tokens = std::max(running, chunk),
                        .prefill_chunk_tokens = chunk},
          .prefix_cache = false,
          .hash_key = {1, 2}};
}

// With an engine and a step of its own.
std::shared_ptr<Recorder> Alone(RealModel& model, const GenerationRequest& request) {
  EngineHarness harness(Options(8, 256), model.runner(), model.tokenizer());
  const auto answer = harness.Send(request);
  harness.RunAll();
  return answer;
}

// Loaded and asked once for all tests.
struct World {
  World() {
    for (const GenerationRequest& subject : subjects) {
      alone.push_back(Alone(model, subject)->ids());
    }
  }
  RealModel model;
  std::vector<GenerationRequest> subjects = Subjects(model);
  std::vector<Ids> alone;
};

class InvarianceTest : public testing::Test {
 protected:
  InvarianceTest()
      : model_(TheWorld().model), subjects_(TheWorld().subjects), alone_(TheWorld().alone) {}

  // Sends all subjects at once and compares.
  void ExpectSame(EngineHarness& harness) {
    std::vector<std::shared_ptr<Recorder>> answers;
    for (const GenerationRequest& subject : subjects_) answers.push_back(harness.Send(subject));
    harness.RunAll();
    for (size_t i = 0; i < answers.size(); ++i) {
      EXPECT_EQ(answers[i]->ids(), alone_[i]) << "subject " << i;
    }
  }

  RealModel& model_;
  const std::vector<GenerationRequest>& subjects_;
  const std::vector<Ids>& alone_;

 private:
  static World& TheWorld() {
    static World world;
    return world;
  }
};

TEST_F(InvarianceTest, TheSubjectsDiffer) {
  for (const Ids& ids : alone_) EXPECT_EQ(ids.size(), static_cast<size_t>(kAnswerTokens));
  for (size_t i = 0; i < alone_.size(); i += 2) EXPECT_NE(alone_[i], alone_[i + 1]);
}

TEST_F(InvarianceTest, With31Neighbours) {
  for (const size_t subject : {2u, 7u}) {
    EngineHarness harness(Options(32, 64), model_.runner(), model_.tokenizer());
    std::vector<GenerationRequest> neighbours = Neighbours(model_, 31);
    for (int i = 0; i < 15; ++i) harness.Send(neighbours[static_cast<size_t>(i)]);
    for (int turn = 0; turn < 3; ++turn) harness.engine().Turn();
    const auto answer = harness.Send(subjects_[subject]);
    for (int i = 15; i < 31; ++i) harness.Send(neighbours[static_cast<size_t>(i)]);
    harness.RunAll();
    EXPECT_EQ(answer->ids(), alone_[subject]);
  }
}

TEST_F(InvarianceTest, WithChunksOf1And7And64) {
  for (const int chunk : {1, 7, 64}) {
    // One at a time: nothing but the chunk cuts the prompt.
    EngineHarness harness(Options(1, chunk), model_.runner(), model_.tokenizer());
    ExpectSame(harness);
  }
}

TEST_F(InvarianceTest, WithAColdAndAWarmPrefixCache) {
  EngineOptions options = Options(8, 64);
  options.prefix_cache = true;
  EngineHarness harness(options, model_.runner(), model_.tokenizer());
  ExpectSame(harness);
  ExpectSame(harness);
  const auto warm = harness.Send(subjects_.back());
  harness.RunAll();
  EXPECT_GT(warm->end()->timeline.cached_prompt_tokens, 32);
  EXPECT_EQ(warm->ids(), alone_.back());
}

TEST_F(InvarianceTest, WithForcedPreemption) {
  for (const bool prefix_cache : {false, true}) {
    EngineOptions options = Options(8, 64);
    options.scheduler.optimistic_admission = true;
    options.prefix_cache = prefix_cache;
    SmallPool pool(model_.runner(), 12);
    EngineHarness harness(options, pool, model_.tokenizer());
    ExpectSame(harness);
    EXPECT_GE(harness.engine().load().preemptions, 3);
  }
}

// As the server does on a device that computes while the host goes on; here the host computes what
// is enqueued ahead, too.
TEST_F(InvarianceTest, WithStepsEnqueuedAhead) {
  model_.set_runs_ahead(true);
  for (const bool prefix_cache : {false, true}) {
    EngineOptions options = Options(12, 64);
    options.scheduler.optimistic_admission = prefix_cache;
    options.prefix_cache = prefix_cache;
    SmallPool pool(model_.runner(), 14);
    EngineHarness harness(options, prefix_cache ? pool : model_.runner(), model_.tokenizer());
    ExpectSame(harness);
    for (GenerationRequest& neighbour : Neighbours(model_, 6)) {
      harness.Send(std::move(neighbour));
      harness.engine().Turn();
    }
    ExpectSame(harness);
  }
  model_.set_runs_ahead(false);
}

// Every token gathers in messages that nobody takes before the end.
TEST_F(InvarianceTest, WithASlowReader) {
  class SlowReader final : public TokenSink {
   public:
    void OnPromptLogprobs(std::span<const PromptToken> /*prompt*/) override {}
    void OnToken(const AnswerToken& token) override { messages.AddToken(token); }
    void OnEnd(const AnswerEnd& /*end*/) override {}
    StreamMessages messages{size_t{1} << 20};
  };
  EngineHarness harness(Options(8, 64), model_.runner(), model_.tokenizer());
  std::vector<std::shared_ptr<SlowReader>> readers;
  for (const GenerationRequest& subject : subjects_) {
    readers.push_back(std::make_shared<SlowReader>());
    harness.Push(subject, readers.back());
  }
  // The engine is done with all of them before delivery sees the first token.
  while (harness.engine().Turn()) {
  }
  harness.delivery().Deliver();
  for (size_t i = 0; i < readers.size(); ++i) {
    const auto event = readers[i]->messages.Take();
    ASSERT_TRUE(event.has_value());
    Ids ids;
    for (const v1::Token& token : event->tokens().tokens()) {
      ids.push_back(static_cast<TokenId>(token.id()));
    }
    EXPECT_EQ(ids, alone_[i]);
  }
}

TEST_F(InvarianceTest, WithFourChoices) {
  GenerationRequest request = subjects_.back();
  request.num_choices = kChoices;
  const auto quiet = Alone(model_, request);
  EXPECT_EQ(quiet->ids(0), alone_.back());
  for (int choice = 1; choice < kChoices; ++choice) {
    EXPECT_NE(quiet->ids(choice), quiet->ids(0));
  }

  // Beside others, in small chunks, in blocks that do not suffice, from the cache.
  EngineOptions options = Options(12, 17);
  options.scheduler.optimistic_admission = true;
  options.prefix_cache = true;
  SmallPool pool(model_.runner(), 14);
  EngineHarness harness(options, pool, model_.tokenizer());
  for (int round = 0; round < 2; ++round) {
    const auto busy = harness.Send(request);
    for (int turn = 0; turn < 8; ++turn) harness.engine().Turn();
    for (GenerationRequest neighbour : Neighbours(model_, 12)) {
      neighbour.priority = 1;  // Then it is the choices that give way as these grow.
      neighbour.stop.max_length += 3 * kKvBlockTokens;
      harness.Send(neighbour);
    }
    harness.RunAll();
    EXPECT_GE(busy->end()->timeline.preemptions, 1);
    for (int choice = 0; choice < kChoices; ++choice) {
      EXPECT_EQ(busy->ids(choice), quiet->ids(choice)) << choice;
    }
  }

  // Greedy choices are all the same.
  GenerationRequest greedy = subjects_[subjects_.size() - 2];
  greedy.num_choices = kChoices;
  const auto same = Alone(model_, greedy);
  for (int choice = 0; choice < kChoices; ++choice) {
    EXPECT_EQ(same->ids(choice), alone_[subjects_.size() - 2]);
  }
}

}  // namespace
}  // namespace vitrine::server
