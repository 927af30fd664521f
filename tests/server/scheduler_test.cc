#include "server/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/server/fake_runner.h"

namespace vitrine::server {
namespace {

constexpr int kVocabulary = 1000;
constexpr SipHashKey kKey = {3, 4};

struct Ask {
  int prompt = 0;
  int max_tokens = 0;
  int priority = 0;
  int first_token = 1;  // Prompts with equal first tokens share prefixes.
  int choices = 1;
  uint64_t seed = 0;  // Not 0: the draw depends on it, on the choice and the position.
};

SampleRow RowOf(const Ask& ask, int choice) {
  return {.temperature = ask.seed == 0 ? 0.0f : 1.0f,
          .seed = ask.seed,
          .choice = static_cast<uint32_t>(choice)};
}

// A scheduler with a fake model and names for its requests.
class Bench {
 public:
  Bench(SchedulerOptions options, int num_blocks, bool prefix_cache = false)
      : pool_(prefix_cache ? BlockPool(num_blocks, kKey) : BlockPool(num_blocks)),
        scheduler_(options, pool_),
        runner_({.max_step_rows = options.max_step_tokens,
                 .max_step_sequences = options.max_running_sequences,
                 .num_blocks = num_blocks,
                 .context_length = 4096,
                 .vocabulary = kVocabulary,
                 .runs_ahead = options.runs_ahead}) {}

  std::shared_ptr<ActiveRequest> Add(const std::string& name, const Ask& ask) {
    GenerationRequest request;
    for (int i = 0; i < ask.prompt; ++i) request.prompt.push_back((ask.first_token + i) % 997);
    request.priority = ask.priority;
    request.stop.max_length = ask.prompt + ask.max_tokens;
    request.num_choices = ask.choices;
    request.sampling = {.temperature = RowOf(ask, 0).temperature, .seed = ask.seed};
    auto active = std::make_shared<ActiveRequest>(name, std::move(request), nullptr);
    scheduler_.Admit(Sequence::ForRequest(active, pool_.RootChain(""), arrivals_));
    arrivals_ += kMaxChoices;
    return active;
  }

  // One step. Returns what it computed, as "a:4 b:1 b/1:1": rows per sequence, in order of service,
  // further choices of a request by their number.
  std::string Step() {
    const Batch& batch = scheduler_.Next();
    std::string rows;
    for (const Sequence* sequence : scheduler_.step()) {
      if (!rows.empty()) rows += ' ';
      rows += NameOf(*sequence) + ":" + std::to_string(sequence->planned);
    }
    if (batch.rows() == 0) return rows;
    std::vector<TokenId> next(batch.sampling.size());
    runner_.Step(batch, next);
    for (const StepResult& result :
         scheduler_.Complete(next, runner_.logprobs(), runner_.prompt_logprobs())) {
      const std::string name = NameOf(*result.sequence);
      if (result.token >= 0) answers_[name].push_back(result.token);
      if (result.has_ended) ended_.push_back(name);
    }
    EXPECT_EQ(pool_.free() + pool_.owned() + pool_.cached(), pool_.num_blocks());
    return rows;
  }

  int RunAll() {
    int steps = 0;
    while (!Step().empty()) EXPECT_LT(++steps, 100'000);
    return steps;
  }

  void ExpectAnswer(const std::string& name, const Ask& ask) {
    std::vector<TokenId> prompt;
    for (int i = 0; i < ask.prompt; ++i) prompt.push_back((ask.first_token + i) % 997);
    for (int choice = 0; choice < ask.choices; ++choice) {
      const std::string answer = choice == 0 ? name : name + "/" + std::to_string(choice);
      EXPECT_EQ(answers_[answer],
                ExpectedTokens(prompt, ask.max_tokens, RowOf(ask, choice), kVocabulary))
          << answer;
    }
  }

  const std::vector<TokenId>& answer(const std::string& name) { return answers_[name]; }
  BlockPool& pool() { return pool_; }
  Scheduler& scheduler() { return scheduler_; }
  FakeRunner& runner() { return runner_; }
  const std::vector<std::string>& ended() const { return ended_; }

 private:
  static std::string NameOf(const Sequence& sequence) {
    const std::string& id = sequence.owner->id;
    return sequence.choice == 0 ? id : id + "/" + std::to_string(sequence.choice);
  }

  BlockPool pool_;
  Scheduler scheduler_;
  FakeRunner runner_;
  uint64_t arrivals_ = 0;
  std::map<std::string, std::vector<TokenId>> answers_;
  std::vector<std::string> ended_;
};

constexpr SchedulerOptions kSmall = {
    .max_running_sequences = 4, .max_step_tokens = 16, .prefill_chunk_tokens = 8};

TEST(Scheduler, AloneFillsTheStepThenDecodesOneByOne) {
  Bench bench(kSmall, 8);
  bench.Add("a", {.prompt = 20, .max_tokens = 3});
  EXPECT_EQ(bench.Step(), "a:16");
  EXPECT_EQ(bench.Step(), "a:4");
  EXPECT_EQ(bench.Step(), "a:1");
  EXPECT_EQ(bench.Step(), "a:1");
  EXPECT_EQ(bench.Step(), "");
  bench.ExpectAnswer("a", {.prompt = 20, .max_tokens = 3});
  EXPECT_EQ(bench.pool().owned(), 0);
}

TEST(Scheduler, PrefillOnlyEndsWithoutAToken) {
  Bench bench(kSmall, 8);
  const auto request = bench.Add("a", {.prompt = 20, .max_tokens = 0});
  EXPECT_EQ(bench.RunAll(), 2);
  EXPECT_EQ(request->endings[0].ending, Ending::kFinished);
  EXPECT_EQ(request->endings[0].reason, FinishReason::kMaxTokens);
  bench.ExpectAnswer("a", {.prompt = 20, .max_tokens = 0});
}

// Case 86: neither prefill nor decode starves the other.
TEST(Scheduler, DecodesNeverWaitForPrefills) {
  Bench bench(kSmall, 64);
  bench.Add("a", {.prompt = 1, .max_tokens = 40});
  EXPECT_EQ(bench.Step(), "a:1");
  bench.Add("long", {.prompt = 200, .max_tokens = 1});
  for (int step = 0; step < 25; ++step) EXPECT_EQ(bench.Step(), "a:1 long:8");
}

TEST(Scheduler, AShortPromptOvertakesALongOneButNotItsShare) {
  Bench bench(kSmall, 64);
  bench.Add("long", {.prompt = 200, .max_tokens = 1});
  bench.Step();
  bench.Add("short", {.prompt = 12, .max_tokens = 1, .first_token = 500});
  EXPECT_EQ(bench.Step(), "long:1 short:7");
  EXPECT_EQ(bench.Step(), "long:3 short:5");
  EXPECT_EQ(bench.ended(), std::vector<std::string>{"short"});
  EXPECT_EQ(bench.Step(), "long:16");
}

TEST(Scheduler, PriorityThenArrival) {
  SchedulerOptions options = kSmall;
  options.max_running_sequences = 1;
  Bench bench(options, 8);
  bench.Add("first", {.prompt = 2, .max_tokens = 1});
  bench.Add("second", {.prompt = 2, .max_tokens = 1});
  bench.Add("urgent", {.prompt = 2, .max_tokens = 1, .priority = 5});
  bench.RunAll();
  EXPECT_EQ(bench.ended(), (std::vector<std::string>{"urgent", "first", "second"}));
}

// vllm#33499 in case 86: waiting is bounded whatever the priorities.
TEST(Scheduler, TheOldestIsPassedAtMostBypassLimitTimes) {
  SchedulerOptions options = kSmall;
  options.max_running_sequences = 1;
  options.bypass_limit = 3;
  Bench bench(options, 8);
  bench.Add("patient", {.prompt = 2, .max_tokens = 1, .priority = -1});
  for (int i = 0; i < 10; ++i) {
    bench.Add("u" + std::to_string(i), {.prompt = 2, .max_tokens = 1, .priority = 5});
  }
  bench.RunAll();
  const auto& ended = bench.ended();
  EXPECT_EQ(std::ranges::find(ended, "patient") - ended.begin(), 3);
}

TEST(Scheduler, ARequestThatDoesNotFitIsPassedAtMostBypassLimitTimes) {
  SchedulerOptions options = kSmall;
  options.bypass_limit = 2;
  Bench bench(options, 4);
  bench.Add("a", {.prompt = 16, .max_tokens = 33});  // Three blocks.
  bench.Step();
  bench.Add("big", {.prompt = 40, .max_tokens = 9});  // Three blocks: waits for a.
  for (int i = 0; i < 8; ++i) {
    bench.Add("s" + std::to_string(i), {.prompt = 4, .max_tokens = 12, .first_token = 100 + i});
  }
  bench.RunAll();
  const auto& ended = bench.ended();
  EXPECT_EQ(ended.size(), 10u);
  // Two small ones use the fourth block; then everything waits for big.
  EXPECT_EQ(ended[0], "s0");
  EXPECT_EQ(ended[1], "s1");
  EXPECT_EQ(ended[2], "a");
  EXPECT_EQ(bench.scheduler().preemptions(), 0);
}

TEST(Scheduler, ConservativeAdmissionNeverPreempts) {
  Bench bench(kSmall, 6);
  for (int i = 0; i < 6; ++i) {
    bench.Add(std::to_string(i), {.prompt = 10, .max_tokens = 30, .first_token = 100 * i});
  }
  bench.RunAll();
  EXPECT_EQ(bench.scheduler().preemptions(), 0);
  for (int i = 0; i < 6; ++i) {
    bench.ExpectAnswer(std::to_string(i), {.prompt = 10, .max_tokens = 30, .first_token = 100 * i});
  }
}

// Case 89: preempted and computed again, the answer is the same and nothing is doubled.
TEST(Scheduler, PreemptionByRecomputeChangesNothing) {
  for (const bool prefix_cache : {false, true}) {
    SchedulerOptions options = kSmall;
    options.optimistic_admission = true;
    Bench bench(options, 6, prefix_cache);
    std::map<std::string, Ask> asks;
    for (int i = 0; i < 4; ++i) {
      asks[std::to_string(i)] = {.prompt = 10, .max_tokens = 50, .first_token = 100 * i};
    }
    for (const auto& [name, ask] : asks) bench.Add(name, ask);
    bench.RunAll();
    EXPECT_GE(bench.scheduler().preemptions(), 3);
    for (const auto& [name, ask] : asks) bench.ExpectAnswer(name, ask);
    EXPECT_EQ(bench.pool().owned(), 0);
  }
}

TEST(Scheduler, PreemptsTheLowestPriorityThenTheLatestArrival) {
  SchedulerOptions options = kSmall;
  options.optimistic_admission = true;
  Bench bench(options, 4);
  const auto low = bench.Add("low", {.prompt = 10, .max_tokens = 30, .priority = -1});
  const auto early = bench.Add("early", {.prompt = 10, .max_tokens = 30, .first_token = 100});
  bench.RunAll();
  EXPECT_EQ(bench.ended().front(), "early");
  EXPECT_GE(bench.scheduler().preemptions(), 1);
}

// Case 88: a block is offered only after it was computed; who needs it meanwhile waits.
TEST(Scheduler, EqualPromptsInOneStepAreComputedOnce) {
  Bench bench({.max_running_sequences = 64, .max_step_tokens = 128, .prefill_chunk_tokens = 64},
              512, /*prefix_cache=*/true);
  const Ask ask = {.prompt = 100, .max_tokens = 4};
  std::vector<std::shared_ptr<ActiveRequest>> requests;
  for (int i = 0; i < 64; ++i) requests.push_back(bench.Add(std::to_string(i), ask));
  bench.RunAll();
  for (int i = 0; i < 64; ++i) bench.ExpectAnswer(std::to_string(i), ask);
  // One computes 100 rows; each other one only the 4 after the last whole block.
  EXPECT_EQ(bench.runner().rows, 100 + 63 * 4 + 64 * 3);
  EXPECT_EQ(bench.pool().owned(), 0);
}

TEST(Scheduler, TheLastPromptTokenIsAlwaysComputed) {
  Bench bench(kSmall, 16, /*prefix_cache=*/true);
  const Ask ask = {.prompt = 32, .max_tokens = 2};
  bench.Add("cold", ask);
  bench.RunAll();
  bench.Add("warm", ask);
  EXPECT_EQ(bench.Step(), "warm:16");  // One of two blocks: the second holds the last token.
  bench.RunAll();
  bench.ExpectAnswer("cold", ask);
  bench.ExpectAnswer("warm", ask);
}

TEST(Scheduler, RemovedSequencesFreeTheirBlocksAtOnce) {
  Bench bench(kSmall, 16);
  bench.Add("a", {.prompt = 40, .max_tokens = 10});
  bench.Add("b", {.prompt = 40, .max_tokens = 10, .first_token = 300});
  bench.Step();
  EXPECT_GT(bench.pool().owned(), 0);
  bench.scheduler().RemoveIf([](Sequence& sequence) { return sequence.owner->id == "a"; });
  bench.RunAll();
  EXPECT_EQ(bench.ended(), std::vector<std::string>{"b"});
  bench.ExpectAnswer("b", {.prompt = 40, .max_tokens = 10, .first_token = 300});
  EXPECT_EQ(bench.pool().owned(), 0);
}

TEST(Scheduler, AFailedRowFailsOnlyItsRequest) {
  Bench bench(kSmall, 16);
  const auto bad = bench.Add("bad", {.prompt = 5, .max_tokens = 10});
  const auto good = bench.Add("good", {.prompt = 6, .max_tokens = 10, .first_token = 300});
  bench.runner().is_broken = [](const SampleRow& row) { return row.position == 5; };
  bench.RunAll();
  EXPECT_EQ(bad->endings[0].ending, Ending::kFailed);
  EXPECT_EQ(good->endings[0].ending, Ending::kFinished);
  bench.ExpectAnswer("good", {.prompt = 6, .max_tokens = 10, .first_token = 300});
}

TEST(Scheduler, ChoicesShareThePromptsWholeBlocks) {
  for (const bool prefix_cache : {false, true}) {
    Bench bench(kSmall, 16, prefix_cache);
    const Ask ask = {.prompt = 37, .max_tokens = 3, .choices = 3, .seed = 5};
    bench.Add("a", ask);
    EXPECT_EQ(bench.Step(), "a:16");
    EXPECT_EQ(bench.Step(), "a:16");
    EXPECT_EQ(bench.Step(), "a:5");
    EXPECT_EQ(bench.pool().owned(), 3);
    // Each further choice computes what follows the last whole block, for its own logits.
    EXPECT_EQ(bench.Step(), "a:1 a/1:5 a/2:3");
    EXPECT_EQ(bench.pool().owned(), 3 + 2);
    EXPECT_EQ(bench.Step(), "a:1 a/1:1 a/2:2");
    bench.RunAll();
    bench.ExpectAnswer("a", ask);
    EXPECT_EQ(bench.pool().owned(), 0);
  }
}

TEST(Scheduler, ChoicesOfWholeBlocksComputeTheLastOneEach) {
  Bench bench(kSmall, 16);
  const Ask ask = {.prompt = 16, .max_tokens = 2, .choices = 2, .seed = 5};
  bench.Add("a", ask);
  EXPECT_EQ(bench.Step(), "a:16");
  EXPECT_EQ(bench.Step(), "a:1 a/1:8");
  bench.RunAll();
  bench.ExpectAnswer("a", ask);
}

TEST(Scheduler, TheFirstChoiceIsTheAnswerOfASingleOne) {
  Ask ask = {.prompt = 20, .max_tokens = 12, .seed = 9};
  Bench single(kSmall, 16);
  single.Add("a", ask);
  single.RunAll();
  single.ExpectAnswer("a", ask);
  ask.choices = 4;
  Bench many(kSmall, 16);
  many.Add("a", ask);
  many.RunAll();
  many.ExpectAnswer("a", ask);  // Choice 0 by the same formula.
}

TEST(Scheduler, ARequestWaitsForPlacesForAllItsChoices) {
  Bench bench(kSmall, 64);
  bench.Add("a", {.prompt = 4, .max_tokens = 3});
  bench.Step();
  bench.Add("b", {.prompt = 4, .max_tokens = 2, .first_token = 50, .choices = 4, .seed = 3});
  EXPECT_EQ(bench.Step(), "a:1");
  EXPECT_EQ(bench.Step(), "a:1");
  EXPECT_EQ(bench.Step(), "b:4");
  EXPECT_EQ(bench.Step(), "b:1 b/1:4 b/2:4");
  bench.RunAll();
}

TEST(Scheduler, PlacesAreKeptForChoicesThatHaveNotStarted) {
  Bench bench(kSmall, 64);
  bench.Add("a", {.prompt = 40, .max_tokens = 2, .choices = 3, .seed = 3});
  bench.Step();
  bench.Add("b", {.prompt = 4, .max_tokens = 1, .first_token = 50});
  bench.Add("c", {.prompt = 4, .max_tokens = 1, .first_token = 90});
  EXPECT_EQ(bench.Step(), "a:4 b:4");
}

// The promise of conservative admission counts every choice: nothing is preempted, nothing waits
// for more than it needs.
TEST(Scheduler, ConservativeAdmissionCountsSharedBlocksOnce) {
  Bench bench(kSmall, 9);
  // 2 shared blocks, and for each of 3 choices 2 of its own: 8.
  const Ask wide = {.prompt = 33, .max_tokens = 32, .choices = 3, .seed = 3};
  const Ask small = {.prompt = 10, .max_tokens = 7, .first_token = 100};
  bench.Add("wide", wide);
  bench.Step();
  bench.Add("small", small);
  bench.Add("next", {.prompt = 10, .max_tokens = 7, .first_token = 200});
  EXPECT_EQ(bench.Step(), "wide:1 small:7");
  bench.RunAll();
  EXPECT_EQ(bench.scheduler().preemptions(), 0);
  bench.ExpectAnswer("wide", wide);
  bench.ExpectAnswer("small", small);
}

TEST(Scheduler, PreemptedChoicesGiveTheSameAnswers) {
  for (const bool prefix_cache : {false, true}) {
    SchedulerOptions options = kSmall;
    options.max_running_sequences = 6;
    options.optimistic_admission = true;
    Bench bench(options, 14, prefix_cache);
    std::map<std::string, Ask> asks;
    for (int i = 0; i < 4; ++i) {
      asks[std::to_string(i)] = {.prompt = 20 + 9 * i,
                                 .max_tokens = 50,
                                 .first_token = 100 * i,
                                 .choices = 1 + i % 3,
                                 .seed = 7};
    }
    for (const auto& [name, ask] : asks) bench.Add(name, ask);
    bench.RunAll();
    EXPECT_GE(bench.scheduler().preemptions(), 3);
    for (const auto& [name, ask] : asks) bench.ExpectAnswer(name, ask);
    EXPECT_EQ(bench.pool().owned(), 0);
  }
}

TEST(Scheduler, ARemovedRequestTakesItsWaitingChoicesAlong) {
  Bench bench(kSmall, 16);
  bench.Add("a", {.prompt = 40, .max_tokens = 10, .choices = 3, .seed = 3});
  bench.Step();
  bench.scheduler().RemoveIf([](Sequence& sequence) {
    EXPECT_EQ(sequence.num_siblings(), 2);
    return true;
  });
  EXPECT_EQ(bench.Step(), "");
  EXPECT_EQ(bench.pool().owned(), 0);
}

TEST(Scheduler, AnswersDoNotDependOnTheChunkSize) {
  for (const int chunk : {1, 3, 7, 16, 64}) {
    for (const bool prefix_cache : {false, true}) {
      Bench bench(
          {.max_running_sequences = 8, .max_step_tokens = 72, .prefill_chunk_tokens = chunk}, 64,
          prefix_cache);
      std::map<std::string, Ask> asks;
      for (int i = 0; i < 8; ++i) {
        asks[std::to_string(i)] = {
            .prompt = 1 + 13 * i, .max_tokens = 10, .first_token = 100 * (i % 3)};
      }
      for (const auto& [name, ask] : asks) bench.Add(name, ask);
      bench.RunAll();
      for (const auto& [name, ask] : asks) bench.ExpectAnswer(name, ask);
    }
  }
}

SchedulerOptions RunningAhead(SchedulerOptions options) {
  options.runs_ahead = true;
  return options;
}

TEST(Scheduler, SaysWhoGoesOnAndGivesItsNextBlock) {
  Bench bench(RunningAhead(kSmall), 8);
  std::vector<int32_t> continuing;
  bench.runner().before_step = [&](const Batch& batch) { continuing = batch.continuing; };
  bench.Add("a", {.prompt = 14, .max_tokens = 4});
  EXPECT_EQ(bench.Step(), "a:14");
  EXPECT_TRUE(continuing.empty());  // A prompt.
  bench.Add("b", {.prompt = 1, .max_tokens = 2, .first_token = 50});
  EXPECT_EQ(bench.Step(), "a:1 b:1");
  EXPECT_EQ(continuing, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(bench.pool().owned(), 2);
  EXPECT_EQ(bench.Step(), "a:1 b:1");  // Of a, position 15; it is b's last.
  EXPECT_EQ(continuing, std::vector<int32_t>{0});
  EXPECT_EQ(bench.pool().owned(), 2);
  EXPECT_EQ(bench.Step(), "a:1");
  EXPECT_TRUE(continuing.empty());
  bench.ExpectAnswer("a", {.prompt = 14, .max_tokens = 4});
  EXPECT_EQ(bench.pool().owned(), 0);
}

TEST(Scheduler, NobodyGoesOnBesideARequestForMoreThanTokens) {
  const auto continues = [](auto&& change) {
    Bench bench(RunningAhead(kSmall), 8);
    GenerationRequest request;
    request.prompt = {1};
    request.stop.max_length = 9;
    change(request);
    bench.Add("a", {.prompt = 1, .max_tokens = 8});
    bench.scheduler().Admit(Sequence::ForRequest(
        std::make_shared<ActiveRequest>("b", request, nullptr), bench.pool().RootChain(""), 1000));
    size_t most = 0;
    bench.runner().before_step = [&](const Batch& batch) {
      most = std::max(most, batch.continuing.size());
    };
    bench.RunAll();
    return most > 0;
  };
  EXPECT_TRUE(continues([](GenerationRequest&) {}));
  EXPECT_FALSE(continues([](GenerationRequest& request) { request.output.logprobs = 0; }));
  EXPECT_FALSE(
      continues([](GenerationRequest& request) { request.sampling.repetition_penalty = 1.5f; }));
  EXPECT_FALSE(continues([](GenerationRequest& request) { request.sampling.banned = {3}; }));
}

// What a step ahead scrawls over is nobody else's, whoever leaves, is preempted or shares a prefix.
TEST(Scheduler, RunningAheadChangesNoAnswer) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    SchedulerOptions options = RunningAhead(kSmall);
    options.optimistic_admission = seed % 2 == 1;
    Bench bench(options, 12, /*prefix_cache=*/seed % 4 >= 2);
    std::map<std::string, Ask> asks;
    for (int i = 0; i < 20; ++i) {
      const std::string name = std::to_string(i);
      asks[name] = {.prompt = 1 + static_cast<int>(random() % 40),
                    .max_tokens = 1 + static_cast<int>(random() % 40),
                    .first_token = 100 * static_cast<int>(random() % 3),
                    .choices = 1 + static_cast<int>(random() % 2),
                    .seed = 7};
      bench.Add(name, asks[name]);
      for (uint32_t steps = random() % 20; steps > 0; --steps) bench.Step();
      if (random() % 4 > 0) continue;
      bench.scheduler().RemoveIf([&](Sequence& sequence) {
        if (sequence.owner->id != name) return false;
        asks.erase(name);
        return true;
      });
    }
    bench.RunAll();
    for (const auto& [name, ask] : asks) bench.ExpectAnswer(name, ask);
    EXPECT_EQ(bench.pool().owned(), 0);
    EXPECT_TRUE(options.optimistic_admission || bench.scheduler().preemptions() == 0);
  }
}

// What a sequence asks of the logits, whatever happens to it: its history, and what min_tokens
// withholds.
TEST(Scheduler, AdjustmentsFollowTheAnswer) {
  Bench bench({.max_running_sequences = 3,
               .max_step_tokens = 16,
               .prefill_chunk_tokens = 8,
               .optimistic_admission = true},
              /*num_blocks=*/5);
  GenerationRequest request;
  for (int i = 0; i < 20; ++i) request.prompt.push_back(i % 3);
  request.sampling.repetition_penalty = 1.5f;
  request.sampling.penalty_window = 12;
  request.stop.max_length = 45;
  request.stop.min_tokens = 10;
  request.stop.withheld = {7, 8};
  std::vector<TokenId> answer;
  bench.runner().before_step = [&](const Batch& batch) {
    for (size_t s = 0; s < batch.sampling.size(); ++s) {
      const SampleRow& row = batch.sampling[s];
      if (row.adjusted_row < 0) continue;  // A neighbour.
      const LogitAdjustment& change = batch.adjustments.at(static_cast<size_t>(row.adjusted_row));
      EXPECT_EQ(static_cast<size_t>(change.row), s);
      std::vector<TokenId> tokens = request.prompt;
      tokens.insert(tokens.end(), answer.begin(), answer.end());
      ASSERT_EQ(row.position, static_cast<int64_t>(tokens.size()));
      std::map<TokenId, int> expected;
      for (size_t i = tokens.size() - 12; i < tokens.size(); ++i) {
        expected[tokens[i]] += i >= request.prompt.size() ? 1 : 0;
      }
      std::map<TokenId, int> seen;
      for (const SeenToken& token : change.seen) seen[token.token_id] = token.generated;
      EXPECT_EQ(seen, expected) << tokens.size();
      EXPECT_EQ(change.withheld.size(), answer.size() < 10 ? 2u : 0u);
      EXPECT_EQ(change.repetition_penalty, 1.5f);
    }
  };
  auto active = std::make_shared<ActiveRequest>("penalised", request, nullptr);
  bench.scheduler().Admit(Sequence::ForRequest(active, bench.pool().RootChain(""), 1000));
  bench.Add("a", {.prompt = 10, .max_tokens = 30});
  bench.Add("b", {.prompt = 10, .max_tokens = 30});
  for (int step = 0; step < 1000 && !bench.Step().empty(); ++step) {
    answer = bench.answer("penalised");
  }
  EXPECT_EQ(answer.size(), 25u);
  EXPECT_GT(bench.scheduler().preemptions(), 0);
  bench.ExpectAnswer("a", {.prompt = 10, .max_tokens = 30});
}

// Every row of the prompt is scored once, whatever the cache holds and however often the sequence
// has to start over.
TEST(Scheduler, EveryPromptRowIsScoredOnce) {
  Bench bench({.max_running_sequences = 3,
               .max_step_tokens = 16,
               .prefill_chunk_tokens = 8,
               .optimistic_admission = true},
              /*num_blocks=*/6, /*prefix_cache=*/true);
  bench.Add("warm", {.prompt = 40, .max_tokens = 1});
  bench.RunAll();
  GenerationRequest request;
  for (int i = 0; i < 40; ++i) request.prompt.push_back((1 + i) % 997);  // The same prompt.
  request.stop.max_length = 50;
  request.output.prompt_logprobs = 1;
  std::vector<TokenId> scored;
  bench.runner().before_step = [&](const Batch& batch) {
    for (const LogprobsRow& row : batch.scored) {
      EXPECT_EQ(row.top_count, 1);
      scored.push_back(row.token_id);
    }
  };
  auto active = std::make_shared<ActiveRequest>("scored", request, nullptr);
  bench.scheduler().Admit(Sequence::ForRequest(active, bench.pool().RootChain(""), 1000));
  bench.Add("a", {.prompt = 10, .max_tokens = 40, .priority = 1, .first_token = 300});
  bench.Add("b", {.prompt = 10, .max_tokens = 40, .priority = 1, .first_token = 500});
  bench.RunAll();
  EXPECT_GT(bench.scheduler().preemptions(), 0);
  EXPECT_EQ(scored, std::vector<TokenId>(request.prompt.begin() + 1, request.prompt.end()));
  EXPECT_EQ(bench.answer("scored"), ExpectedTokens(request.prompt, 10, {}, kVocabulary));
}

}  // namespace
}  // namespace vitrine::server
