// Inspection on the real model, bit for bit: it changes no token, and what is seen does not depend
// on how the engine came to compute it. VITRINE_TEST_MODEL names the model file.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "model/attention_reader.h"
#include "server/validate.h"
#include "tests/server/attention_bench.h"
#include "tests/server/engine_harness.h"
#include "tests/server/real_model.h"

namespace vitrine::server {
namespace {

using Ids = std::vector<TokenId>;

constexpr int kTracedRows = 64;

struct World {
  RealModel off;
  RealModel on{Numerics::kFast, kTracedRows};
  ServedModel served = Describe();
  RequestLimits limits = {.max_running_sequences = 8};

  ServedModel Describe() {
    const RunnerLimits& runner = on.runner().limits();
    return {.name = "model",
            .tokenizer = &on.tokenizer(),
            .vocabulary = on.tokenizer().vocabulary(),
            .context_length = runner.context_length,
            .kv_tokens = int64_t{runner.num_blocks} * kKvBlockTokens,
            .longest_token = LongestToken(on.tokenizer()),
            .inspection_bytes = int64_t{1} << 34,
            .max_reduced_pairs = 64,
            .num_layers = runner.num_layers,
            .num_heads = runner.num_heads};
  }
  GenerationRequest Valid(const v1::GenerateRequest& message) const {
    return ValidateGenerate(message, served, limits).value();
  }
};

World& TheWorld() {
  static World world;
  return world;
}

EngineOptions Options(int running, int chunk, bool is_traced) {
  return {.scheduler = {.max_running_sequences = running,
                        .max_step_tokens = std::max(running, chunk),
                        .prefill_chunk_tokens = chunk,
                        .max_traced_rows = is_traced ? kTracedRows : 0},
          .prefix_cache = false,
          .hash_key = {1, 2}};
}

v1::GenerateRequest Ask(const Ids& prompt, int max_tokens, float temperature, uint64_t seed) {
  v1::GenerateRequest message;
  for (const TokenId id : prompt) message.mutable_token_ids()->add_ids(static_cast<uint32_t>(id));
  message.mutable_sampling()->set_temperature(temperature);
  message.mutable_sampling()->set_seed(seed);
  message.mutable_stop()->set_max_tokens(static_cast<uint32_t>(max_tokens));
  message.mutable_stop()->set_ignore_eos(true);
  return message;
}

// Requests of one random batch; drawn at temperature 1, where the smallest difference of a logit
// sooner or later is another token.
std::vector<v1::GenerateRequest> RandomBatch(std::mt19937& random) {
  std::vector<v1::GenerateRequest> batch;
  const size_t requests = 2 + random() % 4;
  while (batch.size() < requests) {
    Ids prompt(1 + random() % 24);
    for (TokenId& id : prompt) id = static_cast<TokenId>(1000 + random() % 20'000);
    const int max_tokens = 1 + static_cast<int>(random() % 6);
    batch.push_back(Ask(prompt, max_tokens, random() % 4 == 0 ? 0.0f : 1.0f, random()));
  }
  return batch;
}

enum class Traced { kNobody, kFirst, kOthers };

std::vector<Ids> Answers(RealModel& model, const EngineOptions& options,
                         std::vector<v1::GenerateRequest> batch, Traced traced) {
  EngineHarness harness(options, model.runner(), model.tokenizer());
  std::vector<std::shared_ptr<Recorder>> readers;
  for (size_t i = 0; i < batch.size(); ++i) {
    const bool is_traced = traced == (i == 0 ? Traced::kFirst : Traced::kOthers);
    if (is_traced) batch[i].mutable_attention()->add_queries(v1::QUERY_SET_ALL);
    readers.push_back(harness.Send(TheWorld().Valid(batch[i])));
  }
  harness.RunAll();
  std::vector<Ids> answers;
  for (const auto& reader : readers) answers.push_back(reader->ids());
  return answers;
}

TEST(TraceInvariance, TokensOf64RandomBatchesAreThoseWithoutInspection) {
  World& world = TheWorld();
  std::mt19937 random(64);
  for (int round = 0; round < 64; ++round) {
    const std::vector<v1::GenerateRequest> batch = RandomBatch(random);
    const int chunk = 1 + static_cast<int>(random() % 40);
    const std::vector<Ids> off =
        Answers(world.off, Options(8, chunk, false), batch, Traced::kNobody);
    for (const Traced traced : {Traced::kNobody, Traced::kFirst, Traced::kOthers}) {
      EXPECT_EQ(Answers(world.on, Options(8, chunk, true), batch, traced), off)
          << "round " << round << ", traced " << static_cast<int>(traced);
    }
  }
}

// Every number of a trace: dense weights, and statistics as key -1 - index.
DenseCells Numbers(const TraceReader& reader) {
  DenseCells cells = CollectDense(reader.chunks);
  for (const v1::AttentionChunk& chunk : reader.chunks) {
    if (chunk.output() != v1::ATTENTION_OUTPUT_KIND_STATS) continue;
    const std::vector<float> numbers = Floats(chunk.values());
    size_t i = 0;
    for (const uint32_t layer : chunk.layers()) {
      for (const uint32_t head : chunk.heads()) {
        for (const v1::AttentionRow& row : chunk.rows()) {
          for (int stat = 0; stat < kAttentionStats; ++stat, ++i) {
            cells[{static_cast<int>(row.choice()), static_cast<int>(layer), static_cast<int>(head),
                   static_cast<int>(row.query_position()), -1 - stat}] = numbers.at(i);
          }
        }
      }
    }
  }
  return cells;
}

class TraceOfAStory : public testing::Test {
 protected:
  static constexpr int kAnswer = 20;

  TraceOfAStory() {
    const std::string story =
        "The lighthouse keeper climbed the stairs every evening, lit the lamp, and wrote one line "
        "into the book that nobody read. ";
    prompt_ = TheWorld().on.Encode(story + story);
    whole_ = Numbers(*Trace(Options(1, 256, true), v1::QUERY_SET_ALL));
  }

  v1::GenerateRequest Request(v1::QuerySet queries) const {
    v1::GenerateRequest message = Ask(prompt_, kAnswer, 1.0f, 11);
    v1::AttentionSpec& spec = *message.mutable_attention();
    spec.add_queries(queries);
    if (queries == v1::QUERY_SET_LAST_PROMPT) spec.add_queries(v1::QUERY_SET_GENERATED);
    for (const int layer : {0, 14, 29}) spec.mutable_grid()->add_layers(layer);
    spec.add_outputs()->mutable_dense()->set_dtype(v1::ELEMENT_TYPE_F32);
    spec.add_outputs()->mutable_stats();
    return message;
  }

  std::shared_ptr<TraceReader> Push(EngineHarness& harness, v1::QuerySet queries) const {
    auto reader = std::make_shared<TraceReader>();
    harness.Push(TheWorld().Valid(Request(queries)), reader);
    return reader;
  }

  // Alone in an engine of its own.
  std::shared_ptr<TraceReader> Trace(const EngineOptions& options, v1::QuerySet queries) const {
    EngineHarness harness(options, TheWorld().on.runner(), TheWorld().on.tokenizer());
    const auto reader = Push(harness, queries);
    harness.RunAll();
    return reader;
  }

  Ids prompt_;
  DenseCells whole_;  // Of the prompt in one piece.
};

TEST_F(TraceOfAStory, HasEveryRow) {
  const auto rows = static_cast<int64_t>(prompt_.size()) + kAnswer - 1;
  const auto prompt = static_cast<int64_t>(prompt_.size());
  const int64_t dense = prompt * prompt + (rows * (rows + 1) - prompt * (prompt + 1)) / 2;
  const int64_t heads = TheWorld().served.num_heads;
  EXPECT_EQ(static_cast<int64_t>(whole_.size()), 3 * heads * (dense + rows * kAttentionStats));
}

TEST_F(TraceOfAStory, ChunkedIsWhole) {
  for (const int chunk : {1, 7}) {
    EXPECT_TRUE(Numbers(*Trace(Options(1, chunk, true), v1::QUERY_SET_ALL)) == whole_) << chunk;
  }
}

TEST_F(TraceOfAStory, WarmIsCold) {
  EngineOptions options = Options(4, 256, true);
  options.prefix_cache = true;
  EngineHarness harness(options, TheWorld().on.runner(), TheWorld().on.tokenizer());
  const auto cold = Push(harness, v1::QUERY_SET_LAST_PROMPT);
  harness.RunAll();
  const auto warm = Push(harness, v1::QUERY_SET_LAST_PROMPT);
  harness.RunAll();
  EXPECT_EQ(cold->end->timeline.cached_prompt_tokens, 0);
  EXPECT_GT(warm->end->timeline.cached_prompt_tokens, 32);
  const DenseCells numbers = Numbers(*warm);
  EXPECT_TRUE(numbers == Numbers(*cold));
  EXPECT_EQ(warm->trace_end().rows(), static_cast<uint64_t>(kAnswer));
  for (const auto& [place, number] : numbers) ASSERT_EQ(whole_.at(place), number);
}

TEST_F(TraceOfAStory, PreemptedIsNot) {
  EngineOptions options = Options(8, 64, true);
  options.scheduler.optimistic_admission = true;
  SmallPool pool(TheWorld().on.runner(), 7);
  EngineHarness harness(options, pool, TheWorld().on.tokenizer());
  v1::GenerateRequest urgent = Ask(Ids(prompt_.begin(), prompt_.begin() + 20), 60, 1.0f, 3);
  urgent.set_priority(1);
  harness.Send(TheWorld().Valid(urgent));
  const auto reader = Push(harness, v1::QUERY_SET_ALL);
  harness.RunAll();
  EXPECT_GE(reader->end->timeline.preemptions, 1);
  EXPECT_TRUE(Numbers(*reader) == whole_);
}

}  // namespace
}  // namespace vitrine::server
