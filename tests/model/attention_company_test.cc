// What a trace gives does not depend on what else is traced in the same step: single rows of
// several sequences are computed together, by layers, and everything else after the step.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend_factory.h"
#include "model/model_files.h"
#include "model/tensor_map.h"
#include "model/transformer_runner.h"
#include "model/weights.h"

namespace vitrine {
namespace {

std::vector<int32_t> UpTo(int count) {
  std::vector<int32_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Plans of every kind; the first three are computed together, the second in parts of the heads.
std::vector<AttentionPlan> Plans(const ModelConfig& config) {
  AttentionPlan all;
  all.layers = UpTo(config.num_layers);
  all.heads = UpTo(config.num_heads);
  all.wants_stats = true;
  all.top_k = 5;
  std::vector<AttentionPlan> plans(7, all);
  plans[1].layers = {1};
  plans[1].heads = {3, 1};
  plans[1].top_k = 2;
  plans[1].top_ranges = {{.begin = 1, .end = 4}, {.begin = 6, .end = 20}};
  plans[1].span_ranges = {{.begin = 0, .end = 3}, {.begin = 5, .end = 9}, {.begin = 9, .end = 11}};
  plans[1].span_begin = {0, 1, 3};
  plans[2].wants_stats = false;
  plans[3].reduce_heads = AttentionCombine::kMean;
  plans[4].wants_rows = true;
  plans[5].wants_stats = false;
  plans[5].stage = AttentionStage::kScores;
  plans[6].layers = {1, 0};
  plans[6].heads = {2, 0};
  plans[6].is_paired = true;
  return plans;
}

template <class T>
void ExpectSame(std::span<const T> a, std::span<const T> b) {
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(a), std::as_bytes(b)));
}

void ExpectSame(const std::vector<AttentionPiece>& actual,
                const std::vector<AttentionPiece>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const AttentionPiece& a = actual[i];
    const AttentionPiece& b = expected[i];
    const auto shape = [](const AttentionPiece& piece) {
      return std::array{piece.first_position, piece.rows, piece.layers, piece.heads,
                        piece.key_columns};
    };
    EXPECT_EQ(shape(a), shape(b));
    EXPECT_EQ(a.max_row_sum_error, b.max_row_sum_error);
    EXPECT_EQ(a.max_lse_delta, b.max_lse_delta);
    ExpectSame(a.top_keys, b.top_keys);
    for (const auto numbers :
         {&AttentionPiece::stats, &AttentionPiece::top_values, &AttentionPiece::tail_mass,
          &AttentionPiece::span_mass, &AttentionPiece::values}) {
      ExpectSame(a.*numbers, b.*numbers);
    }
  }
}

// Sequences of different lengths that all take a step; `rows` of them per sequence.
class Company {
 public:
  Company(Numerics numerics, DType kv_dtype)
      : backend_(*CreateBackend("cpu", {.numerics = numerics, .threads = 2})) {
    const auto files =
        *ModelFiles::Open(std::string(VITRINE_TEST_DATA "/models/llama-gqa-tied-f32"));
    const ModelDescription description = *files->Describe();
    config_ = description.config;
    const ModelTensors tensors = *MapTensors(config_, **files->Weights(), description.names);
    runner_ =
        *TransformerRunner::Create(*backend_, config_, *LoadWeights(config_, tensors, *backend_),
                                   {.max_rows = 256,
                                    .max_samples = 8,
                                    .max_positions = 64,
                                    .num_blocks = 4 * kSequences,
                                    .kv_dtype = kv_dtype,
                                    .max_traced_rows = 64});
    plans_ = Plans(config_);
    for (int s = 0; s < kSequences; ++s) Step(Rows(s, 0, Depth(s)));
  }

  // All of batch.traces in one step against each in a step of its own.
  void ExpectNoInfluence() {
    Batch step;
    for (int s = 0; s < kSequences; ++s) Append(step, s, Depth(s), s == 2 ? 3 : 1);
    const std::vector<AttentionPlan> copies = plans_;  // Equal, at another place.
    for (int s = 0; s < kSequences; ++s) {
      const auto index = static_cast<size_t>(s);
      const auto& plans = s < 8 ? plans_ : copies;
      step.traces.push_back({.sequence = s,
                             .first_row = step.row_begin[index],
                             .rows = step.row_begin[index + 1] - step.row_begin[index],
                             .plan = &plans[index % plans.size()]});
    }
    const std::vector<AttentionPiece> together = Step(step);
    double share = 0;
    for (const AttentionPiece& piece : together) share += piece.share;
    EXPECT_NEAR(share, 1.0, 1e-9);
    const std::vector<TracedRows> traces = step.traces;
    size_t next = 0;
    for (size_t t = 0; t < traces.size(); ++t) {
      SCOPED_TRACE(t);
      std::vector<AttentionPiece> among;
      for (; next < together.size() && together[next].trace == static_cast<int>(t); ++next) {
        among.push_back(together[next]);
      }
      EXPECT_FALSE(among.empty());
      step.traces = {traces[t]};
      ExpectSame(among, Step(step));
    }
    EXPECT_EQ(next, together.size());
  }

 private:
  static constexpr int kSequences = 16;

  static int Depth(int sequence) { return 1 + 37 * sequence % 41; }

  void Append(Batch& batch, int sequence, int position, int rows) const {
    for (int r = 0; r < rows; ++r) {
      batch.token_ids.push_back(5 + (31 * sequence + 7 * (position + r)) % 300);
    }
    batch.row_begin.push_back(batch.rows());
    batch.first_position.push_back(position);
    batch.max_blocks = 4;
    for (int b = 0; b < 4; ++b) batch.block_table.push_back(4 * sequence + b);
  }
  Batch Rows(int sequence, int position, int rows) const {
    Batch batch;
    Append(batch, sequence, position, rows);
    return batch;
  }

  std::vector<AttentionPiece> Step(const Batch& batch) {
    runner_->Step(batch, {});
    std::vector<AttentionPiece> pieces;
    if (!batch.traces.empty()) runner_->ReadAttention(batch, pieces);
    return pieces;
  }

  std::unique_ptr<Backend> backend_;
  ModelConfig config_;
  std::unique_ptr<TransformerRunner> runner_;
  std::vector<AttentionPlan> plans_;
};

TEST(AttentionCompany, ExactNumericsOverF32) {
  Company(Numerics::kExact, DType::kF32).ExpectNoInfluence();
}

TEST(AttentionCompany, FastNumericsOverBf16) {
  Company(Numerics::kFast, DType::kBF16).ExpectNoInfluence();
}

}  // namespace
}  // namespace vitrine
