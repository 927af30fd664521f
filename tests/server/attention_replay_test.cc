// Requests that are looked at after their end: kept, found, and computed again with the same
// numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/backend_factory.h"
#include "model/model_files.h"
#include "model/tensor_map.h"
#include "model/transformer_runner.h"
#include "tests/server/attention_bench.h"

namespace vitrine::server {
namespace {

v1::AttentionSpec DenseSpec(v1::QuerySet queries) {
  v1::AttentionSpec spec;
  spec.add_queries(queries);
  spec.add_outputs()->mutable_dense()->set_dtype(v1::ELEMENT_TYPE_F32);
  spec.add_outputs()->mutable_stats();
  return spec;
}

v1::AttentionProvenance ProvenanceOf(const TraceReader& reader) {
  return reader.chunks.back().provenance();
}

TEST(AttentionReplay, ShowsTheNumbersOfTheLiveTrace) {
  TraceBench bench;
  v1::GenerateRequest request = TraceRequest(30, 12);
  *request.mutable_attention() = DenseSpec(v1::QUERY_SET_ALL);
  const auto live = bench.Run(request);
  // Other work between the two, so that few of its blocks are left.
  for (int i = 2; i < 12; ++i) bench.Run(TraceRequest(60, 20, 20 * i));
  const auto replayed = bench.Replay(0, request.attention());
  EXPECT_EQ(CollectDense(replayed->chunks), CollectDense(live->chunks));
  EXPECT_EQ(replayed->trace_end().rows(), live->trace_end().rows());
  EXPECT_EQ(replayed->trace_end().bytes(), live->trace_end().bytes());
  EXPECT_EQ(replayed->trace_end().status(), v1::TRACE_STATUS_OK);
  EXPECT_EQ(ProvenanceOf(*replayed).max_lse_delta(), 0.0f);
}

TEST(AttentionReplay, UsesCachedBlocksUpToTheFirstRowThatItMustCompute) {
  TraceBench bench;
  bench.Run(TraceRequest(60, 12));
  const int64_t before = bench.runner().rows;
  const auto replayed = bench.Replay(0, DenseSpec(v1::QUERY_SET_GENERATED));
  EXPECT_EQ(replayed->trace_end().rows(), 11u);
  // Rows 60 to 70 are wanted, row 59 is compared: 48 tokens come from the cache.
  EXPECT_EQ(bench.runner().rows - before, 71 - 48);
}

TEST(AttentionReplay, ACertificateTellsWhenTheNumbersAreNotThoseOfThen) {
  TraceBench bench;
  bench.Run(TraceRequest(40, 5));
  const std::vector<float> wrong(kTraceLayers * kTraceHeads, 5.0f);
  bench.active(0).record->KeepRow(0, 43, wrong);
  const auto replayed = bench.Replay(0, DenseSpec(v1::QUERY_SET_GENERATED));
  EXPECT_GT(ProvenanceOf(*replayed).max_lse_delta(), 3.0f);
}

TEST(AttentionReplay, OfARequestThatATextStopCutHasTheRowsOfTheLiveTrace) {
  int cut = 0;
  for (int first = 1; first < 30; ++first) {
    TraceBench bench;
    v1::GenerateRequest request = TraceRequest(20, 40, first);
    for (const char* text : {"s", "t", "a", "4"}) request.mutable_stop()->add_stop_strings(text);
    *request.mutable_attention() = DenseSpec(v1::QUERY_SET_ALL);
    const auto live = bench.Run(request);
    if (live->end->choices[0].reason == FinishReason::kStopString) ++cut;
    const auto replayed = bench.Replay(0, request.attention());
    EXPECT_EQ(CollectDense(replayed->chunks), CollectDense(live->chunks));
  }
  EXPECT_GT(cut, 3);
}

TEST(AttentionReplay, OfALiveRequestShowsWhatThereIs) {
  TraceBench bench;
  const auto reader = bench.Add(TraceRequest(20, 60));
  for (int turn = 0; turn < 12; ++turn) bench.Turn();
  ASSERT_FALSE(reader->end.has_value());
  const auto requests =
      PlanReplay(DenseSpec(v1::QUERY_SET_ALL), *bench.active(0).record, bench.model());
  ASSERT_TRUE(requests.ok());
  EXPECT_EQ(requests->front().prompt.size(), 20 + reader->ids.size() - 1);
  bench.RunAll();
}

// The real thing: a model, exact numerics, live rows of decode steps against a prefill.
TEST(AttentionReplay, OfAModelEqualsTheLiveTrace) {
  const std::string folder = VITRINE_TEST_DATA "/models/llama-gqa-tied-f32";
  const auto backend = *CreateBackend("cpu", {.numerics = Numerics::kExact, .threads = 2});
  const auto files = *ModelFiles::Open(folder);
  const ModelDescription description = *files->Describe();
  const ModelConfig& config = description.config;
  const ModelTensors tensors = *MapTensors(config, **files->Weights(), description.names);
  const TraceBench::Options options = {.layers = config.num_layers, .heads = config.num_heads};
  const auto runner =
      *TransformerRunner::Create(*backend, config, *LoadWeights(config, tensors, *backend),
                                 {.max_rows = 32,
                                  .max_samples = options.running,
                                  .max_positions = options.context,
                                  .num_blocks = options.blocks,
                                  .kv_dtype = DType::kF32,
                                  .max_traced_rows = options.traced_rows});
  TraceBench bench(options, runner.get());
  v1::GenerateRequest request = TraceRequest(23, 20);
  // Delivery works with the fake tokenizer, whose vocabulary is smaller.
  for (uint32_t id = 0; id < 250; ++id) request.mutable_sampling()->add_allowed_token_ids(id);
  *request.mutable_attention() = DenseSpec(v1::QUERY_SET_ALL);
  const auto live = bench.Run(request);
  const auto replayed = bench.Replay(0, request.attention());
  const DenseCells expected = CollectDense(live->chunks);
  const DenseCells actual = CollectDense(replayed->chunks);
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [place, weight] : expected) ASSERT_NEAR(actual.at(place), weight, 1e-6f);
  EXPECT_LE(ProvenanceOf(*replayed).max_lse_delta(), 1e-6f);
  EXPECT_LE(ProvenanceOf(*live).max_row_sum_error(), 1e-5f);
}

TEST(RequestArchive, ForgetsWhenTheTimeIsOverAndTheOldestWhenRoomIsShort) {
  TraceBench bench;
  bench.Run(TraceRequest(20, 3));
  bench.Run(TraceRequest(20, 3, 50));
  RequestArchive& archive = bench.archive();
  EXPECT_TRUE(archive.Find("id0", "").ok());
  EXPECT_TRUE(absl::IsNotFound(archive.Find("id0", "another").status()));
  EXPECT_EQ((*archive.List("", "", 10)).front()->id(), "id1");
  EXPECT_EQ((*archive.List("", "id1", 10)).front()->id(), "id0");
  EXPECT_EQ(archive.KeptFor(*bench.active(0).record), 1'000'000);
  bench.clock().now_us += 1'000'000;
  EXPECT_TRUE(absl::IsNotFound(archive.Find("id0", "").status()));
  EXPECT_EQ(archive.size(), 0u);

  RequestArchive small({.retention_us = 1000, .max_bytes = 3000}, bench.clock());
  for (int i = 0; i < 5; ++i) {
    GenerationRequest request;
    request.prompt.assign(150, 1);
    small.Close(*small.Open("r" + std::to_string(i), request));
  }
  EXPECT_FALSE(small.Find("r0", "").ok());
  EXPECT_TRUE(small.Find("r4", "").ok());
}

TEST(RequestRecord, KeepsTheHistoryOfItsRequest) {
  TraceBench bench({.chunk = 16});
  bench.Add(TraceRequest(40, 4));
  bench.Add(TraceRequest(40, 4, 100));
  bench.RunAll();
  const RequestRecord::View view = bench.active(1).record->Look();
  std::vector<HistoryEvent::Kind> kinds;
  int prefilled = 0;
  for (const HistoryEvent& event : view.history) {
    kinds.push_back(event.kind);
    if (event.kind == HistoryEvent::Kind::kPrefillChunk) prefilled += event.tokens;
  }
  EXPECT_EQ(kinds.front(), HistoryEvent::Kind::kQueued);
  EXPECT_EQ(kinds[1], HistoryEvent::Kind::kAdmitted);
  EXPECT_EQ(kinds.back(), HistoryEvent::Kind::kEnded);
  EXPECT_EQ(prefilled, 40);
  EXPECT_EQ(view.choices[0].ids.size(), 4u);
  EXPECT_EQ(view.choices[0].byte_offsets.size(), 5u);
  EXPECT_EQ(view.choices[0].reason, FinishReason::kMaxTokens);
}

}  // namespace
}  // namespace vitrine::server
