// Traces through scheduler, engine and delivery, on the fake model: every number is checked against
// the history that its row must have seen.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "tests/server/attention_bench.h"

namespace vitrine::server {
namespace {

v1::GenerateRequest DenseRequest(int prompt, int max_tokens, v1::QuerySet queries,
                                 int first_token = 1) {
  v1::GenerateRequest request = TraceRequest(prompt, max_tokens, first_token);
  v1::AttentionSpec& spec = *request.mutable_attention();
  spec.add_queries(queries);
  spec.add_outputs()->mutable_dense()->set_dtype(v1::ELEMENT_TYPE_F32);
  return request;
}

// Every number of rows [first, end), none besides.
void ExpectDense(const TraceReader& reader, int prompt, int first, int end, int first_token = 1) {
  const DenseCells cells = CollectDense(reader.chunks);
  const std::vector<uint64_t> histories = Histories(AllTokens(prompt, reader.ids, first_token));
  size_t expected = 0;
  for (int layer = 0; layer < kTraceLayers; ++layer) {
    for (int head = 0; head < kTraceHeads; ++head) {
      for (int row = first; row < end; ++row) {
        const int keys = row < prompt ? std::min(end, prompt) : row + 1;
        for (int key = 0; key < keys; ++key, ++expected) {
          const auto cell = cells.find({0, layer, head, row, key});
          ASSERT_NE(cell, cells.end()) << "row " << row << " key " << key;
          const float weight =
              key > row ? 0.0f
                        : FakeWeight(histories[static_cast<size_t>(row)], layer, head, key, row);
          ASSERT_EQ(cell->second, weight) << "row " << row << " key " << key;
        }
      }
    }
  }
  EXPECT_EQ(cells.size(), expected);
}

TEST(AttentionTrace, DefaultsAreStatisticsAndTopKOfWhatLedToTheAnswer) {
  TraceBench bench;
  v1::GenerateRequest request = TraceRequest(20, 5);
  request.mutable_attention();
  const auto reader = bench.Run(request);
  const std::vector<uint64_t> histories = Histories(AllTokens(20, reader->ids));
  int stats = 0;
  int tops = 0;
  for (const v1::AttentionChunk& chunk : reader->chunks) {
    if (chunk.has_trace_end()) continue;
    ASSERT_EQ(chunk.rows_size(), 1);
    ASSERT_EQ(chunk.layers_size(), kTraceLayers);
    ASSERT_EQ(chunk.heads_size(), kTraceHeads);
    const uint32_t row = chunk.rows(0).query_position();
    EXPECT_EQ(chunk.rows(0).predicts_position(), row + 1);
    if (chunk.has_top_k()) {
      EXPECT_EQ(row, static_cast<uint32_t>(19 + tops++));
      EXPECT_THAT(chunk.top_k().keys().dims(), testing::ElementsAre(3, 4, 1, 16));
      EXPECT_THAT(chunk.top_k().tail_mass().dims(), testing::ElementsAre(3, 4, 1));
      continue;
    }
    EXPECT_EQ(row, static_cast<uint32_t>(19 + stats++));
    EXPECT_THAT(chunk.values().dims(), testing::ElementsAre(3, 4, 1, 8));
    EXPECT_EQ(Floats(chunk.values())[8], FakeLogSumExp(histories[row], 0, 1));
  }
  EXPECT_EQ(stats, 5);
  EXPECT_EQ(tops, 5);
  EXPECT_EQ(reader->trace_end().status(), v1::TRACE_STATUS_OK);
  EXPECT_EQ(reader->trace_end().rows(), 5u);
  EXPECT_EQ(reader->trace_end().bytes(), 12u * 5u * (8u + 2u * 16u + 1u) * 4u);
  EXPECT_EQ(reader->end->attention_bytes, reader->bytes);
}

TEST(AttentionTrace, DenseHoldsEveryNumberOnceHoweverThePromptIsCut) {
  for (const int chunk : {1, 7, 16, 32}) {
    for (const int traced : {8, 12, 32}) {
      TraceBench bench({.chunk = chunk, .traced_rows = traced});
      const auto reader = bench.Run(DenseRequest(37, 9, v1::QUERY_SET_ALL));
      ExpectDense(*reader, 37, 0, 45);
      EXPECT_EQ(reader->trace_end().rows(), 45u);
      EXPECT_EQ(reader->trace_end().status(), v1::TRACE_STATUS_OK);
    }
  }
}

TEST(AttentionTrace, AWarmPrefixIsReusedUpToTheFirstWantedRow) {
  TraceBench bench;
  bench.Run(TraceRequest(60, 4));
  const int64_t before = bench.runner().rows;
  const auto last = bench.Run(DenseRequest(60, 4, v1::QUERY_SET_LAST_PROMPT));
  ExpectDense(*last, 60, 59, 60);
  EXPECT_EQ(bench.runner().rows - before, 60 - 48 + 3);
  EXPECT_EQ(last->end->timeline.cached_prompt_tokens, 48);
  const auto whole = bench.Run(DenseRequest(60, 4, v1::QUERY_SET_ALL_PROMPT));
  ExpectDense(*whole, 60, 0, 60);
  EXPECT_EQ(whole->end->timeline.cached_prompt_tokens, 0);
  v1::GenerateRequest middle = TraceRequest(60, 1);
  middle.mutable_attention()->add_outputs()->mutable_dense()->set_dtype(v1::ELEMENT_TYPE_F32);
  v1::Range& range = *middle.mutable_attention()->add_query_ranges();
  range.set_begin(35);
  range.set_end(40);
  const auto part = bench.Run(middle);
  EXPECT_EQ(part->end->timeline.cached_prompt_tokens, 32);
  EXPECT_EQ(part->trace_end().rows(), 5u);
}

TEST(AttentionTrace, PreemptionDoublesNoRow) {
  // Two sequences outgrow the pool: the later one is set aside and computed again.
  TraceBench bench({.blocks = 7, .optimistic = true});
  const auto first = bench.Add(DenseRequest(30, 40, v1::QUERY_SET_ALL, 1));
  const auto second = bench.Add(DenseRequest(30, 40, v1::QUERY_SET_ALL, 100));
  bench.RunAll();
  EXPECT_GT(second->end->timeline.preemptions, 0);
  ExpectDense(*first, 30, 0, 69, 1);
  ExpectDense(*second, 30, 0, 69, 100);
}

TEST(AttentionTrace, ASlowReaderPausesItsOwnRequestOnly) {
  TraceBench bench({.buffer_bytes = 20'000});
  const auto slow = bench.Add(DenseRequest(30, 30, v1::QUERY_SET_ALL, 1));
  slow->keeps_credit = true;
  const auto other = bench.Add(DenseRequest(30, 30, v1::QUERY_SET_ALL, 100));
  bench.RunAll();
  EXPECT_TRUE(other->end.has_value());
  ASSERT_FALSE(slow->end.has_value());
  // Bounded: the buffer, a step's rows on top and the chunks made of them.
  EXPECT_LT(bench.active(0).trace_credit->bytes(), 4 * 20'000);
  EXPECT_EQ(bench.engine().load().running_sequences, 1);
  int pauses = 0;
  while (!slow->end.has_value() && pauses < 1000) {
    slow->holds.clear();
    bench.RunAll();
    ++pauses;
  }
  EXPECT_GT(pauses, 3);
  ExpectDense(*slow, 30, 0, 59, 1);
  EXPECT_EQ(slow->ids, ExpectedTokens(AllTokens(30, {}, 1), 30, {}, FakeTokenizer().vocabulary()));
  slow->holds.clear();
  EXPECT_EQ(bench.active(0).trace_credit->bytes(), 0);
}

TEST(AttentionTrace, APausedRequestStillLeaves) {
  TraceBench bench({.buffer_bytes = 1});
  const auto reader = bench.Add(DenseRequest(30, 30, v1::QUERY_SET_ALL));
  reader->keeps_credit = true;
  bench.RunAll();
  ASSERT_FALSE(reader->end.has_value());
  bench.active(0).cancelled = true;
  bench.RunAll();
  EXPECT_EQ(reader->end->ending, Ending::kCancelled);
  EXPECT_EQ(bench.engine().load().blocks_owned, 0);
}

// The engine is ahead of delivery; what it computed past the stop string does not exist.
TEST(AttentionTrace, RowsPastATextStopAreDropped) {
  int cut = 0;
  for (int first = 1; first < 60; ++first) {
    TraceBench bench;
    v1::GenerateRequest request = DenseRequest(20, 40, v1::QUERY_SET_ALL, first);
    for (const char* text : {"s", "t", "a", "4", "k", "Z"})
      request.mutable_stop()->add_stop_strings(text);
    const auto reader = bench.Run(request);
    if (reader->end->choices[0].reason != FinishReason::kStopString) continue;
    ++cut;
    // The row of the last token delivered would predict one that does not exist.
    const int end = std::max(20, 20 + static_cast<int>(reader->ids.size()) - 1);
    ExpectDense(*reader, 20, 0, end, first);
    EXPECT_EQ(reader->trace_end().status(),
              reader->ids.size() < 40 ? v1::TRACE_STATUS_PARTIAL : v1::TRACE_STATUS_OK);
  }
  EXPECT_GT(cut, 10);
}

TEST(AttentionTrace, TheRowThatChoseTheEndBelongsToTheAnswer) {
  TraceBench bench;
  v1::GenerateRequest request = DenseRequest(20, 60, v1::QUERY_SET_ALL);
  // Ends at the fourth token.
  const std::vector<TokenId> answer =
      ExpectedTokens(AllTokens(20, {}), 4, {}, FakeTokenizer().vocabulary());
  request.mutable_stop()->add_stop_token_ids(static_cast<uint32_t>(answer[3]));
  const auto reader = bench.Run(request);
  ASSERT_EQ(reader->end->choices[0].reason, FinishReason::kStopToken);
  ExpectDense(*reader, 20, 0, 20 + 3);
}

TEST(AttentionTrace, ChoicesShareTheRowsOfThePromptAndHaveTheirOwn) {
  TraceBench bench;
  v1::GenerateRequest request = DenseRequest(37, 12, v1::QUERY_SET_ALL);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(3);
  request.mutable_output()->set_n(3);
  const auto reader = bench.Run(request);
  ASSERT_TRUE(reader->has_trace_end());
  EXPECT_NE(reader->choice_ids[0], reader->choice_ids[1]);
  EXPECT_EQ(reader->trace_end().rows(), 37u + 3u * 11u);
  EXPECT_EQ(reader->trace_end().status(), v1::TRACE_STATUS_OK);
  const DenseCells cells = CollectDense(reader->chunks);
  size_t rows = 0;
  for (int choice = 0; choice < 3; ++choice) {
    const std::vector<uint64_t> histories =
        Histories(AllTokens(37, reader->choice_ids[static_cast<size_t>(choice)]));
    for (int row = choice == 0 ? 0 : 37; row < 48; ++row, ++rows) {
      ASSERT_EQ(cells.at({choice, 2, 3, row, row}),
                FakeWeight(histories[static_cast<size_t>(row)], 2, 3, row, row))
          << "choice " << choice << " row " << row;
    }
  }
  EXPECT_EQ(rows, reader->trace_end().rows());
}

TEST(AttentionTrace, TracingChangesNoToken) {
  std::mt19937 random(5);
  for (int round = 0; round < 64; ++round) {
    const auto seed = random();
    std::array<std::vector<std::vector<TokenId>>, 3> answers;
    for (size_t mode = 0; mode < answers.size(); ++mode) {
      std::mt19937 world(seed);
      TraceBench bench({.blocks = 12 + static_cast<int>(world() % 40),
                        .chunk = 1 + static_cast<int>(world() % 32),
                        .optimistic = world() % 2 == 0});
      std::vector<std::shared_ptr<TraceReader>> readers;
      const int requests = 2 + static_cast<int>(world() % 6);
      for (int i = 0; i < requests; ++i) {
        v1::GenerateRequest request =
            TraceRequest(1 + static_cast<int>(world() % 50), 1 + static_cast<int>(world() % 30),
                         static_cast<int>(world() % 3));
        request.mutable_sampling()->set_temperature(world() % 2 == 0 ? 0.0f : 1.0f);
        request.mutable_sampling()->set_seed(world());
        if ((mode == 1 && i == 0) || (mode == 2 && i > 0)) {
          request.mutable_attention()->add_queries(v1::QUERY_SET_ALL);
        }
        readers.push_back(bench.Add(request));
      }
      bench.RunAll();
      for (const auto& reader : readers) answers[mode].push_back(reader->ids);
    }
    EXPECT_EQ(answers[0], answers[1]) << "round " << round;
    EXPECT_EQ(answers[0], answers[2]) << "round " << round;
  }
}

TEST(AttentionTrace, LargeAnswersComeInChunksOfAtMostOneMebibyte) {
  TraceBench bench({.blocks = 40, .traced_rows = 32, .layers = 12, .heads = 16, .context = 512});
  const auto reader = bench.Run(DenseRequest(300, 2, v1::QUERY_SET_ALL));
  EXPECT_EQ(reader->bytes, uint64_t{12} * 16 * (300 * 300 + 301) * 4);
  EXPECT_LE(reader->largest, kMaxTraceChunkBytes);
  EXPECT_GT(reader->largest, kMaxTraceChunkBytes / 2);
}

}  // namespace
}  // namespace vitrine::server
