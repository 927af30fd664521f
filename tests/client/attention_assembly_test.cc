// Chunks to arrays: every number in its place, and every broken promise refused.
#include "client/attention_assembly.h"

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "client/visible_text.h"
#include "tests/client/fake_attention.h"

namespace vitrine::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kPrompt = 5;
constexpr uint32_t kAll = 8;

v1::AttentionSpec Spec(const std::function<void(v1::AttentionSpec*)>& change) {
  v1::AttentionSpec spec;
  change(&spec);
  return spec;
}

absl::StatusOr<AttentionTrace> Assemble(const v1::AttentionSpec& spec,
                                        const std::vector<v1::AttentionChunk>& chunks) {
  AttentionAssembly assembly(spec);
  for (const v1::AttentionChunk& chunk : chunks) {
    absl::Status status = assembly.Add(chunk);
    if (!status.ok()) return status;
  }
  return assembly.Finish();
}

AttentionTrace Trace(const v1::AttentionSpec& spec) {
  absl::StatusOr<AttentionTrace> trace = Assemble(spec, FakeTrace(spec, "r", kPrompt, kAll));
  EXPECT_TRUE(trace.ok()) << trace.status();
  return trace.ok() ? *std::move(trace) : AttentionTrace();
}

v1::AttentionSpec Dense(v1::ElementType dtype = v1::ELEMENT_TYPE_F32) {
  return Spec([dtype](v1::AttentionSpec* spec) {
    spec->add_queries(v1::QUERY_SET_ALL);
    spec->add_outputs()->mutable_dense()->set_dtype(dtype);
  });
}

TEST(AttentionAssemblyTest, DenseNumbersAreInTheirPlaces) {
  for (const v1::ElementType dtype : {v1::ELEMENT_TYPE_F32, v1::ELEMENT_TYPE_F16}) {
    const AttentionTrace trace = Trace(Dense(dtype));
    const AttentionArray* dense = trace.Find(v1::ATTENTION_OUTPUT_KIND_DENSE);
    ASSERT_NE(dense, nullptr);
    EXPECT_THAT(dense->dims, ElementsAre(kFakeLayers, kFakeHeads, kAll - 1, kAll - 1));
    EXPECT_THAT(dense->layers, ElementsAre(0, 1, 2));
    EXPECT_THAT(dense->last, ElementsAre(0, 1, 2, 3, 4, 5, 6));
    // Half a unit of the last of 24 or 11 bits, for numbers below 1.
    const double error = dtype == v1::ELEMENT_TYPE_F32 ? 0x1p-25 : 0x1p-12;
    for (uint32_t layer = 0; layer < kFakeLayers; ++layer) {
      for (uint32_t head = 0; head < kFakeHeads; ++head) {
        for (uint32_t query = 0; query + 1 < kAll; ++query) {
          EXPECT_EQ(dense->rows[query].position, query);
          for (uint32_t key = 0; key + 1 < kAll; ++key) {
            const float value = dense->values[dense->RowBegin(layer, head, query) + key];
            EXPECT_NEAR(value, FakeWeight(layer, head, query, key), error);
            if (key > query) {
              EXPECT_EQ(value, 0.0f);
            }
          }
        }
      }
    }
  }
}

TEST(AttentionAssemblyTest, ReducedAxesHaveLengthOne) {
  v1::AttentionSpec spec = Dense();
  spec.set_reduce_heads(v1::ATTENTION_REDUCE_MEAN);
  const AttentionTrace by_layer = Trace(spec);
  EXPECT_THAT(by_layer.arrays[0].dims, ElementsAre(kFakeLayers, 1, kAll - 1, kAll - 1));
  EXPECT_THAT(by_layer.arrays[0].heads, ElementsAre(0, 1));
  const double mean = (FakeWeight(2, 0, 6, 3) + FakeWeight(2, 1, 6, 3)) / 2;
  EXPECT_NEAR(by_layer.arrays[0].values[by_layer.arrays[0].RowBegin(2, 0, 6) + 3], mean, 0x1p-24);
  spec.set_reduce_layers(v1::ATTENTION_REDUCE_MEAN);
  EXPECT_THAT(Trace(spec).arrays[0].dims, ElementsAre(1, 1, kAll - 1, kAll - 1));
}

TEST(AttentionAssemblyTest, PairsShareTheHeadAxis) {
  v1::AttentionSpec spec = Dense();
  for (const auto& [layer, head] : {std::pair{2, 1u}, {0, 0u}}) {
    v1::LayerHead* pair = spec.mutable_pairs()->add_pairs();
    pair->set_layer(layer);
    pair->set_head(head);
  }
  const AttentionTrace trace = Trace(spec);
  const AttentionArray& dense = trace.arrays[0];
  EXPECT_THAT(dense.dims, ElementsAre(1, 2, kAll - 1, kAll - 1));
  ASSERT_EQ(dense.pairs.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const AttentionHead pair = dense.pairs[i];
    EXPECT_NEAR(dense.values[dense.RowBegin(0, i, 4) + 2], FakeWeight(pair.layer, pair.head, 4, 2),
                0x1p-25);
  }
}

TEST(AttentionAssemblyTest, EveryOtherOutputComesWhole) {
  v1::AttentionSpec spec;
  spec.add_outputs()->mutable_stats();
  spec.add_outputs()->mutable_top_k()->set_k(3);
  spec.add_outputs()->mutable_span_mass();
  spec.add_outputs()->mutable_column_sum();
  for (const uint32_t begin : {0u, 2u}) {
    v1::AttentionSpan* span = spec.add_spans();
    span->set_name("s");
    span->mutable_tokens()->set_begin(begin);
    span->mutable_tokens()->set_end(begin + 2);
  }
  const AttentionTrace trace = Trace(spec);
  ASSERT_EQ(trace.arrays.size(), 4u);
  // The last prompt row and two generated ones.
  const AttentionArray* stats = trace.Find(v1::ATTENTION_OUTPUT_KIND_STATS);
  EXPECT_THAT(stats->dims, ElementsAre(kFakeLayers, kFakeHeads, 3, 8));
  EXPECT_EQ(stats->values[stats->RowBegin(1, 1, 2) + 7], 7.0f);
  const AttentionArray* top = trace.Find(v1::ATTENTION_OUTPUT_KIND_TOP_K);
  EXPECT_THAT(top->dims, ElementsAre(kFakeLayers, kFakeHeads, 3, 3));
  EXPECT_EQ(top->top_keys[top->RowBegin(0, 0, 0)], 0u);
  EXPECT_EQ(top->tail_mass.size(), size_t{kFakeLayers} * kFakeHeads * 3);
  const AttentionArray* mass = trace.Find(v1::ATTENTION_OUTPUT_KIND_SPAN_MASS);
  EXPECT_NEAR(mass->values[mass->RowBegin(0, 1, 1) + 1],
              FakeWeight(0, 1, 5, 2) + FakeWeight(0, 1, 5, 3), 0x1p-24);
  const AttentionArray* sums = trace.Find(v1::ATTENTION_OUTPUT_KIND_COLUMN_SUM);
  EXPECT_THAT(sums->dims, ElementsAre(kFakeLayers, kFakeHeads, 1, 7));
  EXPECT_EQ(trace.provenance.kv_dtype(), "bf16");
  EXPECT_EQ(trace.end.rows(), 3u);
}

TEST(AttentionAssemblyTest, UnseenScoresAreMinusInfinity) {
  v1::AttentionSpec spec = Dense();
  spec.set_stage(v1::ATTENTION_STAGE_SCORES);
  const AttentionTrace trace = Trace(spec);
  // Later than the keys of the chunk that row 0 came in are those of generated rows.
  EXPECT_EQ(trace.arrays[0].values[6], -std::numeric_limits<float>::infinity());
}

using Damage = std::function<void(std::vector<v1::AttentionChunk>* chunks)>;

TEST(AttentionAssemblyTest, RefusesBrokenTraces) {
  const std::vector<std::pair<const char*, Damage>> damages = {
      {"is missing", [](auto* c) { c->erase(c->begin() + 1); }},
      {"is missing", [](auto* c) { std::swap((*c)[0], (*c)[1]); }},
      {"no end", [](auto* c) { c->pop_back(); }},
      {"after the end", [](auto* c) { c->push_back(c->back()); }},
      {"another request", [](auto* c) { (*c)[1].set_request_id("q"); }},
      {"came twice",
       [](auto* c) {
         v1::AttentionChunk again = (*c)[0];
         again.set_sequence_number(c->size() - 1);
         c->back().set_sequence_number(c->size());
         c->back().mutable_trace_end()->set_bytes(c->back().trace_end().bytes() +
                                                  again.values().data().size());
         c->insert(c->end() - 1, again);
       }},
      {"never came",
       [](auto* c) {
         // The first layer of the last row goes, with its bytes.
         const size_t i = c->size() - 4;
         c->back().mutable_trace_end()->set_bytes(c->back().trace_end().bytes() -
                                                  (*c)[i].values().data().size());
         c->erase(c->begin() + static_cast<std::ptrdiff_t>(i));
         for (size_t k = 0; k < c->size(); ++k) (*c)[k].set_sequence_number(k);
       }},
      {"bytes", [](auto* c) { c->back().mutable_trace_end()->set_bytes(1); }},
      {"rows", [](auto* c) { c->back().mutable_trace_end()->set_rows(99); }},
      {"its dims say", [](auto* c) { (*c)[0].mutable_values()->mutable_data()->pop_back(); }},
      {"4", [](auto* c) { (*c)[0].mutable_values()->add_dims(1); }},
      {"0 or beyond", [](auto* c) { (*c)[0].mutable_values()->set_dims(0, 0); }},
      {"0 or beyond",
       [](auto* c) {
         for (int axis = 0; axis < 4; ++axis) (*c)[0].mutable_values()->set_dims(axis, 0xFFFFFFFFu);
       }},
      {"layers and heads", [](auto* c) { (*c)[0].add_layers(2); }},
      {"no layers", [](auto* c) { (*c)[0].clear_heads(); }},
      {"rows", [](auto* c) { (*c)[0].mutable_rows()->RemoveLast(); }},
      {"behind it", [](auto* c) { (*c)[0].mutable_rows(0)->set_predicts_position(7); }},
      {"last axis", [](auto* c) { (*c)[0].set_key_count(4); }},
      {"past any position", [](auto* c) { (*c)[0].set_key_start(0xFFFFFFFFu); }},
      {"element type", [](auto* c) { (*c)[0].mutable_values()->set_dtype(v1::ELEMENT_TYPE_U32); }},
      {"payload", [](auto* c) { (*c)[0].set_output(v1::ATTENTION_OUTPUT_KIND_TOP_K); }},
      {"payload", [](auto* c) { (*c)[0].clear_values(); }},
      {"payload", [](auto* c) { (*c)[0].set_output(static_cast<v1::AttentionOutputKind>(77)); }},
      {"last axis", [](auto* c) { (*c)[0].set_output(v1::ATTENTION_OUTPUT_KIND_STATS); }},
      {"no number",
       [](auto* c) {
         const uint32_t nan = std::bit_cast<uint32_t>(std::numeric_limits<float>::quiet_NaN());
         for (size_t i = 0; i < 4; ++i) {
           (*(*c)[0].mutable_values()->mutable_data())[i] = static_cast<char>(nan >> (8 * i));
         }
       }},
  };
  const v1::AttentionSpec spec = Dense();
  for (const auto& [expected, damage] : damages) {
    std::vector<v1::AttentionChunk> chunks = FakeTrace(spec, "r", kPrompt, kAll);
    damage(&chunks);
    const absl::Status status = Assemble(spec, chunks).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << expected << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(expected));
  }
}

TEST(AttentionAssemblyTest, RefusesBrokenTopK) {
  v1::AttentionSpec spec;
  spec.add_outputs()->mutable_top_k()->set_k(2);
  const std::vector<std::pair<const char*, std::function<void(v1::TopKTensors*)>>> damages = {
      {"no U32", [](auto* t) { t->mutable_keys()->set_dtype(v1::ELEMENT_TYPE_F32); }},
      {"differ in shape",
       [](auto* t) {
         t->mutable_keys()->set_dims(3, 1);
         t->mutable_keys()->mutable_data()->resize(t->keys().data().size() / 2);
       }},
      {"behind its query", [](auto* t) { (*t->mutable_keys()->mutable_data())[1] = 1; }},
      {"tail mass", [](auto* t) { t->clear_tail_mass(); }},
      {"shape or type",
       [](auto* t) {
         t->mutable_tail_mass()->set_dims(0, 2);
         t->mutable_tail_mass()->mutable_data()->append(t->tail_mass().data());
       }},
  };
  for (const auto& [expected, damage] : damages) {
    std::vector<v1::AttentionChunk> chunks = FakeTrace(spec, "r", kPrompt, kAll);
    damage(chunks[0].mutable_top_k());
    const absl::Status status = Assemble(spec, chunks).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << expected << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(expected));
  }
}

// Positions far apart must not become memory.
TEST(AttentionAssemblyTest, RefusesHugeArraysBeforeTheyExist) {
  v1::AttentionSpec spec = Dense();
  spec.mutable_grid()->add_layers(0);
  spec.mutable_grid()->add_heads(0);
  AttentionAssembly assembly(spec);
  constexpr uint32_t kRows = 20'000;
  constexpr uint32_t kKeys = 100;
  for (uint32_t i = 0; i < kRows; ++i) {
    v1::AttentionChunk chunk;
    chunk.set_sequence_number(i);
    chunk.set_output(v1::ATTENTION_OUTPUT_KIND_DENSE);
    chunk.add_layers(0);
    chunk.add_heads(0);
    chunk.add_rows()->set_query_position(i);
    chunk.mutable_rows(0)->set_predicts_position(i + 1);
    chunk.set_key_start(i * kKeys);
    chunk.set_key_count(kKeys);
    for (const uint32_t dim : {1u, 1u, 1u, kKeys}) chunk.mutable_values()->add_dims(dim);
    chunk.mutable_values()->set_dtype(v1::ELEMENT_TYPE_F32);
    chunk.mutable_values()->mutable_data()->resize(kKeys * 4);
    ASSERT_TRUE(assembly.Add(chunk).ok());
  }
  v1::AttentionChunk end;
  end.set_sequence_number(kRows);
  end.mutable_trace_end()->set_rows(kRows);
  end.mutable_trace_end()->set_bytes(uint64_t{kRows} * kKeys * 4);
  ASSERT_TRUE(assembly.Add(end).ok());
  EXPECT_EQ(assembly.Finish().status().code(), absl::StatusCode::kResourceExhausted);
}

// Whatever a server sends, the answer is arrays or an error. Dims are kept small by what arrives.
TEST(AttentionAssemblyTest, SurvivesFlippedBits) {
  // It would say which strings are no UTF-8.
  google::protobuf::SetLogHandler(nullptr);
  std::mt19937 random(7);
  v1::AttentionSpec spec = Dense(v1::ELEMENT_TYPE_F16);
  spec.add_outputs()->mutable_top_k()->set_k(2);
  spec.add_outputs()->mutable_stats();
  const std::vector<v1::AttentionChunk> good = FakeTrace(spec, "r", kPrompt, kAll);
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<v1::AttentionChunk> chunks = good;
    v1::AttentionChunk& chunk = chunks[random() % chunks.size()];
    std::string bytes = chunk.SerializeAsString();
    const size_t at = random() % bytes.size();
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    if (!chunk.ParseFromString(bytes)) continue;
    refused += Assemble(spec, chunks).ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 100);
}

TEST(FloatOfHalfTest, DecodesEveryKind) {
  EXPECT_EQ(FloatOfHalf(0x0000), 0.0f);
  EXPECT_TRUE(std::signbit(FloatOfHalf(0x8000)));
  EXPECT_EQ(FloatOfHalf(0x0001), 0x1p-24f);
  EXPECT_EQ(FloatOfHalf(0x03FF), 1023 * 0x1p-24f);
  EXPECT_EQ(FloatOfHalf(0x0400), 0x1p-14f);
  EXPECT_EQ(FloatOfHalf(0x3C00), 1.0f);
  EXPECT_EQ(FloatOfHalf(0xC000), -2.0f);
  EXPECT_EQ(FloatOfHalf(0x7BFF), 65504.0f);
  EXPECT_EQ(FloatOfHalf(0xFC00), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(FloatOfHalf(0x7E00)));
}

TEST(VisibleTextTest, ShowsWhatWouldNotBeSeen) {
  EXPECT_EQ(VisibleText(" a\tb\n", true), "_a\\tb\\n");
  EXPECT_EQ(VisibleText(" a\n", false), "\u00B7a\u21B5");
  EXPECT_EQ(VisibleText("caf\u00E9", true), "caf\u00E9");
  EXPECT_EQ(VisibleText("\x1b[31m\xE2\x82\x7F", true), "\\x1B[31m\\xE2\\x82\\x7F");
  EXPECT_EQ(VisibleText(std::string("\0\xC0\xAF", 3), true), "\\x00\\xC0\\xAF");
  EXPECT_EQ(DisplayWidth("a\u00E9\u65E5\U0001F600e\u0301"), 7u);
  EXPECT_EQ(FitWidth("\u65E5\u672C\u8A9E", 4, true), "\u65E5~ ");
  EXPECT_EQ(FitWidth("ab", 4, true), "ab  ");
  EXPECT_EQ(FitWidth("abcdef", 4, false), "abc\u2026");
}

}  // namespace
}  // namespace vitrine::client
