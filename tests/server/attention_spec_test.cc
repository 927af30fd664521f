// What may be asked about attention: every rule is refused by its name, and the size that is
// announced is the size that comes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "server/field_error.h"
#include "tests/server/attention_bench.h"

namespace vitrine::server {
namespace {

using testing::HasSubstr;

absl::Status StatusOfSpec(const TraceBench& bench,
                          const std::function<void(v1::AttentionSpec&)>& fill) {
  v1::GenerateRequest request = TraceRequest(20, 5);
  fill(*request.mutable_attention());
  return bench.Validate(request).status();
}

std::string FieldOf(const absl::Status& status) {
  const std::optional<FieldViolation> violation = ViolationOf(status);
  return violation.has_value() ? violation->field : "";
}

struct BadSpec {
  const char* field;
  std::function<void(v1::AttentionSpec&)> fill;
};

v1::Range MakeRange(uint32_t begin, uint32_t end) {
  v1::Range range;
  range.set_begin(begin);
  range.set_end(end);
  return range;
}

std::vector<BadSpec> BadHeads() {
  return {
      {"attention.pairs.pairs", [](auto& s) { s.mutable_pairs(); }},
      {"attention.pairs.pairs[0].layer",
       [](auto& s) { s.mutable_pairs()->add_pairs()->set_layer(3); }},
      {"attention.pairs.pairs[0].layer",
       [](auto& s) { s.mutable_pairs()->add_pairs()->set_layer(-4); }},
      {"attention.pairs.pairs[0].head",
       [](auto& s) { s.mutable_pairs()->add_pairs()->set_head(4); }},
      {"attention.pairs.pairs[1]",
       [](auto& s) {
         s.mutable_pairs()->add_pairs()->set_layer(2);
         s.mutable_pairs()->add_pairs()->set_layer(-1);
       }},
      {"attention.grid.layers[1]",
       [](auto& s) {
         s.mutable_grid()->add_layers(0);
         s.mutable_grid()->add_layers(-3);
       }},
      {"attention.grid.layers",
       [](auto& s) {
         for (int i = 0; i < 1000000; ++i) s.mutable_grid()->add_layers(0);
       }},
      {"attention.grid.heads[0]", [](auto& s) { s.mutable_grid()->add_heads(4); }},
      {"attention.reduce_layers",
       [](auto& s) {
         s.mutable_pairs()->add_pairs();
         s.set_reduce_layers(v1::ATTENTION_REDUCE_MEAN);
       }},
      {"attention.reduce_heads",
       [](auto& s) { s.set_reduce_heads(static_cast<v1::AttentionReduce>(9)); }},
  };
}

std::vector<BadSpec> BadRowsAndKeys() {
  return {
      {"attention.queries[0]", [](auto& s) { s.add_queries(v1::QUERY_SET_UNSPECIFIED); }},
      {"attention.query_ranges[0]", [](auto& s) { *s.add_query_ranges() = MakeRange(9, 3); }},
      {"attention.query_ranges[0]", [](auto& s) { *s.add_query_ranges() = MakeRange(3, 3); }},
      {"attention.query_ranges[0]",
       [](auto& s) { *s.add_query_ranges() = MakeRange(0, kTraceContext + 1); }},
      {"attention.key_ranges[1]",
       [](auto& s) {
         *s.add_key_ranges() = MakeRange(4, 8);
         *s.add_key_ranges() = MakeRange(7, 9);
       }},
      {"attention.key_ranges[0]", [](auto& s) { *s.add_key_ranges() = MakeRange(0, 4000000000u); }},
      {"attention.spans[0]", [](auto& s) { s.add_spans()->set_name("a"); }},
      {"attention.spans[1].name",
       [](auto& s) {
         *s.add_spans()->mutable_tokens() = MakeRange(0, 1);
         *s.add_spans()->mutable_tokens() = MakeRange(1, 2);
       }},
      {"attention.spans[0].name", [](auto& s) { s.add_spans()->set_name(std::string(65, 'x')); }},
      {"attention.spans",
       [](auto& s) {
         for (int i = 0; i < 65; ++i) s.add_spans()->set_name(std::to_string(i));
       }},
  };
}

std::vector<BadSpec> BadOutputs() {
  return {
      {"attention.outputs[0]", [](auto& s) { s.add_outputs(); }},
      {"attention.outputs[0]", [](auto& s) { s.add_outputs()->mutable_span_mass(); }},
      {"attention.outputs[1]",
       [](auto& s) {
         s.add_outputs()->mutable_stats();
         s.add_outputs()->mutable_stats();
       }},
      {"attention.outputs[0].top_k.k", [](auto& s) { s.add_outputs()->mutable_top_k()->set_k(0); }},
      {"attention.outputs[0].top_k.k",
       [](auto& s) { s.add_outputs()->mutable_top_k()->set_k(1025); }},
      {"attention.outputs[0].dense.dtype",
       [](auto& s) { s.add_outputs()->mutable_dense()->set_dtype(v1::ELEMENT_TYPE_U32); }},
      {"attention.outputs[0].tile.key_bins",
       [](auto& s) { s.add_outputs()->mutable_tile()->set_key_bins(0); }},
      {"attention.outputs[0].tile.reduce",
       [](auto& s) { s.add_outputs()->mutable_tile()->set_reduce(v1::ATTENTION_REDUCE_NONE); }},
      {"attention.outputs", [](auto& s) { s.set_stage(v1::ATTENTION_STAGE_SCORES); }},
      {"attention.outputs[0]",
       [](auto& s) {
         s.set_stage(v1::ATTENTION_STAGE_SCORES);
         s.add_outputs()->mutable_column_sum();
       }},
      {"attention.stage", [](auto& s) { s.set_stage(static_cast<v1::AttentionStage>(7)); }},
      {"attention.max_bytes", [](auto& s) { s.set_max_bytes(uint64_t{1} << 50); }},
  };
}

TEST(AttentionSpec, WhatBreaksARuleIsRefusedByItsField) {
  const TraceBench bench;
  for (const std::vector<BadSpec>& group : {BadHeads(), BadRowsAndKeys(), BadOutputs()}) {
    for (const BadSpec& bad : group) {
      const absl::Status status = StatusOfSpec(bench, bad.fill);
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad.field << ": " << status;
      EXPECT_EQ(FieldOf(status), bad.field) << status;
    }
  }
}

TEST(AttentionSpec, SpansThatThePromptCannotHaveAreAPrecondition) {
  const TraceBench bench;
  const absl::Status role =
      StatusOfSpec(bench, [](auto& s) { s.add_spans()->set_chat_role("user"); });
  EXPECT_TRUE(absl::IsFailedPrecondition(role)) << role;
  const absl::Status bytes = StatusOfSpec(
      bench, [](auto& s) { *s.add_spans()->mutable_prompt_bytes() = MakeRange(0, 1); });
  EXPECT_TRUE(absl::IsFailedPrecondition(bytes)) << bytes;
}

TEST(AttentionSpec, BytesOfThePromptBecomeTheTokensThatHoldThem) {
  const TraceBench bench;
  v1::GenerateRequest request;
  request.set_text("abcdef");  // A begin token, then one per byte.
  request.mutable_stop()->set_max_tokens(1);
  v1::AttentionSpec& spec = *request.mutable_attention();
  *spec.add_spans()->mutable_prompt_bytes() = MakeRange(2, 5);
  spec.add_outputs()->mutable_span_mass();
  const absl::StatusOr<GenerationRequest> valid = bench.Validate(request);
  ASSERT_TRUE(valid.ok()) << valid.status();
  const AttentionPlan& plan = valid->trace->plan;
  ASSERT_EQ(plan.span_ranges.size(), 1u);
  EXPECT_EQ(plan.span_ranges[0].begin, 3);
  EXPECT_EQ(plan.span_ranges[0].end, 6);
  spec.mutable_spans(0)->mutable_prompt_bytes()->set_end(7);
  EXPECT_EQ(FieldOf(bench.Validate(request).status()), "attention.spans[0].prompt_bytes");
}

TEST(AttentionSpec, OffIsAPreconditionThatSaysHowToTurnItOn) {
  const TraceBench bench({.max_bytes = 0});
  const absl::Status status = StatusOfSpec(bench, [](auto&) {});
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--allow_inspection"));
}

TEST(AttentionSpec, TooMuchIsRefusedWithTheExactNumberBeforeAnyWork) {
  TraceBench bench({.max_bytes = 100'000});
  const auto whole = [](auto& s) {
    s.add_queries(v1::QUERY_SET_ALL_PROMPT);
    s.add_outputs()->mutable_dense()->set_dtype(v1::ELEMENT_TYPE_F32);
  };
  EXPECT_TRUE(StatusOfSpec(bench, whole).ok());
  v1::GenerateRequest request = TraceRequest(90, 1);
  whole(*request.mutable_attention());
  const absl::Status status = bench.Validate(request).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::to_string(3 * 4 * 90 * 90 * 4)));
  EXPECT_EQ(bench.runner().steps, 0);
  const absl::Status own = StatusOfSpec(bench, [&](auto& s) {
    whole(s);
    s.set_max_bytes(3 * 4 * 20 * 20 * 4 - 1);
  });
  EXPECT_TRUE(absl::IsResourceExhausted(own));
  EXPECT_THAT(std::string(own.message()), HasSubstr(std::to_string(3 * 4 * 20 * 20 * 4)));
  EXPECT_TRUE(StatusOfSpec(bench, [&](auto& s) {
                whole(s);
                s.set_max_bytes(3 * 4 * 20 * 20 * 4);
              }).ok());
}

// Random but valid, over every field.
class RandomSpec {
 public:
  explicit RandomSpec(uint64_t seed) : random_(seed) {}

  v1::GenerateRequest Make() {
    v1::GenerateRequest request = TraceRequest(1 + Below(60), Below(30));
    v1::AttentionSpec& spec = *request.mutable_attention();
    Heads(spec);
    for (int i = Below(3); i > 0; --i) spec.add_queries(static_cast<v1::QuerySet>(1 + Below(4)));
    for (int i = Below(3); i > 0; --i) {
      const int begin = Below(90);
      *spec.add_query_ranges() = MakeRange(Word(begin), Word(begin + 1 + Below(96 - begin)));
    }
    int key = Below(10);
    for (int i = Below(4); i > 0 && key < 80; --i) {
      const int end = key + 1 + Below(20);
      *spec.add_key_ranges() = MakeRange(Word(key), Word(std::min(end, 96)));
      key = end + Below(9);
    }
    for (int i = Below(4); i > 0; --i) {
      v1::AttentionSpan& span = *spec.add_spans();
      span.set_name(std::to_string(i));
      *span.mutable_tokens() = MakeRange(Word(Below(40)), Word(41 + Below(50)));
    }
    Outputs(spec);
    return request;
  }

 private:
  int Below(int limit) { return static_cast<int>(random_() % static_cast<uint64_t>(limit)); }
  static uint32_t Word(int value) { return static_cast<uint32_t>(value); }

  void Heads(v1::AttentionSpec& spec) {
    const int way = Below(4);
    if (way == 1) {
      for (int i = 0; i < kTraceLayers; ++i) {
        v1::LayerHead& pair = *spec.mutable_pairs()->add_pairs();
        pair.set_layer(i - kTraceLayers * Below(2));
        pair.set_head(Word(Below(kTraceHeads)));
      }
    } else if (way == 2) {
      spec.mutable_grid()->add_layers(-1);
      if (Below(2) == 0) spec.mutable_grid()->add_layers(0);
      for (int i = Below(3); i > 0; --i) spec.mutable_grid()->add_heads(Word(i));
    }
    spec.set_reduce_heads(static_cast<v1::AttentionReduce>(Below(4)));
    if (way != 1) spec.set_reduce_layers(static_cast<v1::AttentionReduce>(Below(4)));
  }

  void Outputs(v1::AttentionSpec& spec) {
    const bool scores = Below(4) == 0;
    if (scores) spec.set_stage(v1::ATTENTION_STAGE_SCORES);
    if (!scores && Below(2) == 0) spec.add_outputs()->mutable_stats();
    if (Below(2) == 0) spec.add_outputs()->mutable_top_k()->set_k(Word(1 + Below(20)));
    if (!scores && spec.spans_size() > 0) spec.add_outputs()->mutable_span_mass();
    if (!scores && Below(3) == 0) spec.add_outputs()->mutable_column_sum();
    if (Below(3) == 0) {
      spec.add_outputs()->mutable_dense()->set_dtype(Below(2) == 0 ? v1::ELEMENT_TYPE_F16
                                                                   : v1::ELEMENT_TYPE_F32);
    }
    if (scores || Below(3) == 0) {
      v1::TileOutput& tile = *spec.add_outputs()->mutable_tile();
      tile.set_query_bins(Word(1 + Below(9)));
      tile.set_key_bins(Word(1 + Below(9)));
      tile.set_reduce(Below(2) == 0 ? v1::ATTENTION_REDUCE_MEAN : v1::ATTENTION_REDUCE_MAX);
    }
  }

  std::mt19937_64 random_;
};

uint64_t ElementBytes(v1::ElementType type) { return type == v1::ELEMENT_TYPE_F16 ? 2 : 4; }

void ExpectShape(const v1::Tensor& tensor) {
  uint64_t bytes = ElementBytes(tensor.dtype());
  for (const uint32_t dim : tensor.dims()) bytes *= dim;
  ASSERT_EQ(bytes, tensor.data().size());
  ASSERT_LE(bytes, kMaxTraceChunkBytes);
}

TEST(AttentionSpec, TwoThousandRandomSpecsKeepTheSizeThatTheyAnnounce) {
  RandomSpec random(20);
  int complete = 0;
  for (int round = 0; round < 2000; ++round) {
    v1::GenerateRequest request = random.Make();
    // A third may end early.
    if (round % 3 == 0) request.mutable_stop()->set_ignore_eos(false);
    if (round % 3 == 0) request.mutable_stop()->add_stop_strings("s");
    TraceBench bench({.chunk = 1 + round % 32});
    const absl::StatusOr<GenerationRequest> valid = bench.Validate(request);
    ASSERT_TRUE(valid.ok()) << valid.status() << request.DebugString();
    const uint64_t announced = valid->trace->AnswerBytes();
    const auto reader = bench.Run(request);
    uint64_t sent = 0;
    for (const v1::AttentionChunk& chunk : reader->chunks) {
      if (chunk.has_values()) ExpectShape(chunk.values());
      if (chunk.has_top_k()) {
        ExpectShape(chunk.top_k().keys());
        ExpectShape(chunk.top_k().weights());
        sent += chunk.top_k().keys().data().size() + chunk.top_k().weights().data().size() +
                chunk.top_k().tail_mass().data().size();
      }
      sent += chunk.values().data().size();
    }
    ASSERT_TRUE(reader->has_trace_end());
    const v1::TraceEnd& end = reader->trace_end();
    ASSERT_EQ(end.bytes(), sent);
    ASSERT_LE(sent, announced) << request.DebugString();
    if (end.status() != v1::TRACE_STATUS_OK) continue;
    ++complete;
    ASSERT_EQ(sent, announced) << request.DebugString();
  }
  EXPECT_GT(complete, 1000);
}

TEST(AttentionSpec, SizesOfHugeSpecsDoNotOverflow) {
  TraceSpec spec;
  spec.plan.layers.assign(1024, 0);
  spec.plan.heads.assign(4096, 0);
  spec.plan.wants_rows = true;
  spec.prompt_tokens = 1 << 24;
  spec.rows = {{.begin = 0, .end = 1 << 24}};
  spec.keys = {{.begin = 0, .end = 1 << 24}};
  spec.outputs = {{.kind = TraceOutputKind::kDense}};
  EXPECT_EQ(spec.AnswerBytes(), UINT64_MAX);
}

}  // namespace
}  // namespace vitrine::server
