#include "kernels/paged_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/attention_oracle.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/golden.h"
#include "tests/kernels/paged.h"

namespace vitrine::testing {
namespace {

class PagedAttentionTest : public ::testing::TestWithParam<BackendCase> {};

// A cache with `contexts[s]` tokens of sequence s, and the rows that wrote them.
class Scene {
 public:
  Scene(const BackendCase& backend_case, const HeadShape& shape, DType kv_dtype,
        const std::vector<int>& contexts, int threads = 2, float spread = 1.0f)
      : case_(backend_case),
        shape_(shape),
        harness_(backend_case, threads),
        random_(static_cast<uint32_t>(shape.head_dim + shape.num_heads)),
        sequences_(static_cast<int>(contexts.size()), *std::ranges::max_element(contexts), random_),
        kv_(harness_.NewKv(shape.KvSpec(kv_dtype, sequences_.num_blocks(), 2))) {
    for (size_t s = 0; s < contexts.size(); ++s) {
      qkv_.push_back(random_.Normal(contexts[s] * shape.qkv_columns(), spread));
      stored_.push_back(Store(qkv_.back(), kv_dtype));
    }
  }

  struct Result {
    std::vector<float> output;       // [rows, num_heads, head_dim]
    std::vector<float> log_sum_exp;  // [rows, num_heads]
  };

  // Writes the rows of a step and attends with them.
  Result Run(const std::vector<StepPart>& parts, const AttentionOptions& options) {
    const Step step = sequences_.MakeStep(parts);
    const DeviceSpan<float> q = Write(step, parts);
    return Attend(step, q, options);
  }

  // Writes all rows but attends only with those of `parts`.
  Result WriteAllThenAttend(const std::vector<StepPart>& parts, const AttentionOptions& options) {
    std::vector<StepPart> all;
    for (size_t s = 0; s < qkv_.size(); ++s) {
      all.push_back({static_cast<int>(s), 0, Context(s)});
    }
    Write(sequences_.MakeStep(all), all);
    return Run(parts, options);
  }

  struct Expected {
    std::vector<Bounded> output;
    std::vector<Bounded> log_sum_exp;
  };
  Expected Oracle(const std::vector<StepPart>& parts, const AttentionOptions& options) const;

  Harness& harness() { return harness_; }

 private:
  int Context(size_t s) const {
    return static_cast<int>(static_cast<int64_t>(qkv_[s].size()) / shape_.qkv_columns());
  }
  SequenceKv Store(const std::vector<float>& qkv, DType dtype) const {
    SequenceKv kv;
    for (auto row = qkv.begin(); row != qkv.end(); row += shape_.qkv_columns()) {
      const auto keys = row + shape_.q_columns();
      const auto values = keys + shape_.kv_columns();
      kv.keys.insert(kv.keys.end(), keys, values);
      kv.values.insert(kv.values.end(), values, values + shape_.kv_columns());
    }
    return {dtype, StoredKeys(dtype, shape_.head_dim, kv.keys), StoredValues(dtype, kv.values)};
  }
  DeviceSpan<float> Write(const Step& step, const std::vector<StepPart>& parts) {
    std::vector<float> rows;
    for (const StepPart& part : parts) {
      const auto begin = qkv_[static_cast<size_t>(part.sequence)].begin() +
                         part.first_position * shape_.qkv_columns();
      rows.insert(rows.end(), begin, begin + part.rows * shape_.qkv_columns());
    }
    return WriteUnrotated(harness_, kv_, 1, step, shape_, rows);
  }
  Result Attend(const Step& step, DeviceSpan<const float> q, const AttentionOptions& options) {
    RowBuffer* output = harness_.NewRows(step.rows(), {harness_.Identity(shape_.q_columns())});
    const DeviceSpan<float> log_sum_exp = harness_.Zeros(int64_t{step.rows()} * shape_.num_heads);
    harness_->PagedAttention({.q = q,
                              .batch = &step.batch(),
                              .kv = kv_,
                              .layer = 1,
                              .num_heads = shape_.num_heads,
                              .scale = options.scale,
                              .softcap = options.softcap,
                              .window = options.window,
                              .sinks = Optional(options.sinks),
                              .alibi_slopes = Optional(options.alibi_slopes),
                              .output = output,
                              .log_sum_exp = log_sum_exp});
    return {harness_.Read(output, step.rows()), harness_.Download(log_sum_exp)};
  }
  DeviceSpan<const float> Optional(const std::vector<float>& values) {
    return values.empty() ? DeviceSpan<const float>() : harness_.Upload(values);
  }

  BackendCase case_;
  HeadShape shape_;
  Harness harness_;
  Random random_;
  PagedSequences sequences_;
  KvStorage* kv_;
  std::vector<std::vector<float>> qkv_;  // Per sequence: [context, qkv_columns]
  std::vector<SequenceKv> stored_;
};

Scene::Expected Scene::Oracle(const std::vector<StepPart>& parts,
                              const AttentionOptions& options) const {
  Expected expected;
  const auto head_dim = static_cast<size_t>(shape_.head_dim);
  for (const StepPart& part : parts) {
    const auto s = static_cast<size_t>(part.sequence);
    for (int i = 0; i < part.rows; ++i) {
      const int position = part.first_position + i;
      const auto row =
          std::span(qkv_[s]).subspan(static_cast<size_t>(position * shape_.qkv_columns()));
      for (int head = 0; head < shape_.num_heads; ++head) {
        const auto q = row.subspan(static_cast<size_t>(head) * head_dim, head_dim);
        const AttentionRow exact =
            AttendExactly(case_, options, shape_, stored_[s], q, head, position);
        expected.output.insert(expected.output.end(), exact.output.begin(), exact.output.end());
        expected.log_sum_exp.push_back(exact.log_sum_exp);
      }
    }
  }
  return expected;
}

float ScaleOf(int head_dim) { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }

// The last rows of contexts that end before, at and after the borders of blocks and segments.
const std::vector<int>& Contexts() {
  static const auto* const contexts = new std::vector<int>{1, 15, 16, 17, 255, 256, 257, 600};
  return *contexts;
}
std::vector<StepPart> LastRows() {
  std::vector<StepPart> parts;
  const std::vector<int> rows = {1, 2, 16, 1, 3, 1, 2, 1};
  for (const int s : {5, 0, 3, 7, 1, 2, 4, 6}) {
    const auto index = static_cast<size_t>(s);
    parts.push_back({s, Contexts()[index] - rows[index], rows[index]});
  }
  return parts;
}

void ExpectAttention(const BackendCase& backend_case, const HeadShape& shape, DType kv_dtype,
                     const AttentionOptions& options) {
  SCOPED_TRACE(std::to_string(shape.num_heads) + "/" + std::to_string(shape.num_kv_heads) +
               " heads of " + std::to_string(shape.head_dim) + ", cache " +
               std::string(TraitsOf(kv_dtype).name));
  Scene scene(backend_case, shape, kv_dtype, Contexts());
  const Scene::Result result = scene.WriteAllThenAttend(LastRows(), options);
  const Scene::Expected expected = scene.Oracle(LastRows(), options);
  ExpectClose(result.output, expected.output);
  ExpectClose(result.log_sum_exp, expected.log_sum_exp);
}

TEST_P(PagedAttentionTest, MatchesTheOracle) {
  const std::vector<HeadShape> shapes = {{3, 3, 8},   {8, 1, 16}, {4, 2, 24}, {3, 1, 64},
                                         {9, 3, 64},  {2, 1, 80}, {8, 8, 80}, {6, 2, 96},
                                         {4, 4, 128}, {8, 1, 128}};
  for (const HeadShape& shape : shapes) {
    for (const DType dtype : CacheTypes(GetParam())) {
      ExpectAttention(GetParam(), shape, dtype, {.scale = ScaleOf(shape.head_dim)});
    }
  }
}

TEST_P(PagedAttentionTest, WindowsSoftcapsSinksAndSlopes) {
  const HeadShape shape = {6, 2, 64};
  const std::vector<float> sinks = {-2.0f, 0.0f, 1.5f, 6.0f, -50.0f, 3.0f};
  const std::vector<float> slopes = {0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f, 0.125f};
  const float scale = ScaleOf(64);
  for (const DType dtype : CacheTypes(GetParam())) {
    for (const int window : {1, 2, 16, 100, 255, 256, 257, 1000}) {
      SCOPED_TRACE("window " + std::to_string(window));
      ExpectAttention(GetParam(), shape, dtype, {.scale = scale, .window = window});
    }
    ExpectAttention(GetParam(), shape, dtype, {.scale = scale, .softcap = 2.0f});
    ExpectAttention(GetParam(), shape, dtype, {.scale = scale, .sinks = sinks});
    ExpectAttention(GetParam(), shape, dtype, {.scale = scale, .alibi_slopes = slopes});
    ExpectAttention(
        GetParam(), shape, dtype,
        {.scale = scale, .softcap = 5.0f, .window = 40, .sinks = sinks, .alibi_slopes = slopes});
  }
}

TEST_P(PagedAttentionTest, OutputFeedsConsumersOfEveryType) {
  const HeadShape shape = {4, 2, 24};
  for (const DType dtype : kRequiredTypes) {
    for (const int rows : {1, 20}) {
      SCOPED_TRACE(std::string(TraitsOf(dtype).name) + ", " + std::to_string(rows) + " rows");
      Harness harness(GetParam());
      Random random(51);
      const Weights weights = RandomWeights(dtype, 19, shape.q_columns(), random);
      const PackedMatrix* packed = harness.Pack({&weights});
      RowBuffer* middle = harness.NewRows(rows, {harness.Identity(shape.q_columns()), packed});
      const PagedSequences sequences(1, rows, random);
      KvStorage* kv = harness.NewKv(shape.KvSpec(DType::kBF16, sequences.num_blocks()));
      const Step step = sequences.MakeStep({{0, 0, rows}});
      const DeviceSpan<float> q =
          WriteUnrotated(harness, kv, 0, step, shape, random.Normal(rows * shape.qkv_columns()));
      harness->PagedAttention(
          {.q = q, .batch = &step.batch(), .kv = kv, .num_heads = 4, .output = middle});
      const DeviceSpan<float> output = harness.Zeros(int64_t{rows} * 19);
      harness->MatMul({.input = middle, .weight = packed, .output = output, .rows = rows});
      ExpectClose(harness.Download(output),
                  MatMulOracle(GetParam(), harness.Reread(middle, rows), weights, {}));
    }
  }
}

// Pads [rows, columns] to heads of `padded` columns; zeros behind a head change no dot product.
std::vector<float> Padded(const std::vector<float>& values, size_t columns, size_t padded) {
  std::vector<float> result;
  for (size_t begin = 0; begin < values.size(); begin += columns) {
    const auto row = values.begin() + static_cast<int64_t>(begin);
    result.insert(result.end(), row, row + static_cast<int64_t>(columns));
    result.resize(result.size() + padded - columns);
  }
  return result;
}

// q [queries, heads, d], k and v [keys, kv_heads, d] of one sequence, with heads already padded.
struct SmallProblem {
  HeadShape shape;
  int queries = 0;
  int keys = 0;
  std::vector<float> q;
  SequenceKv kv;
  AttentionOptions options;
};

std::pair<std::vector<float>, std::vector<float>> Compute(const BackendCase& backend_case,
                                                          const SmallProblem& problem) {
  Harness harness(backend_case);
  Random random(1);
  const HeadShape& shape = problem.shape;
  const PagedSequences sequences(1, problem.keys, random);
  KvStorage* kv = harness.NewKv(shape.KvSpec(DType::kF32, sequences.num_blocks()));
  const Step all = sequences.MakeStep({{0, 0, problem.keys}});
  std::vector<float> qkv;
  for (int key = 0; key < problem.keys; ++key) {
    qkv.resize(qkv.size() + static_cast<size_t>(shape.q_columns()));
    for (const std::vector<float>* part : {&problem.kv.keys, &problem.kv.values}) {
      const auto begin = part->begin() + key * shape.kv_columns();
      qkv.insert(qkv.end(), begin, begin + shape.kv_columns());
    }
  }
  WriteUnrotated(harness, kv, 0, all, shape, qkv);
  const Step step = sequences.MakeStep({{0, problem.keys - problem.queries, problem.queries}});
  RowBuffer* output = harness.NewRows(step.rows(), {harness.Identity(shape.q_columns())});
  const DeviceSpan<float> log_sum_exp = harness.Zeros(int64_t{step.rows()} * shape.num_heads);
  const auto optional = [&](const std::vector<float>& values) {
    return values.empty() ? DeviceSpan<const float>() : harness.Upload(values);
  };
  harness->PagedAttention({.q = harness.Upload(problem.q),
                           .batch = &step.batch(),
                           .kv = kv,
                           .num_heads = shape.num_heads,
                           .scale = problem.options.scale,
                           .softcap = problem.options.softcap,
                           .window = problem.options.window,
                           .sinks = optional(problem.options.sinks),
                           .alibi_slopes = optional(problem.options.alibi_slopes),
                           .output = output,
                           .log_sum_exp = log_sum_exp});
  return {harness.Read(output, step.rows()), harness.Download(log_sum_exp)};
}

// From [heads][tokens][d] to [tokens][heads][d].
std::vector<float> TokensFirst(const std::vector<float>& values, size_t heads, size_t tokens) {
  const size_t d = values.size() / heads / tokens;
  std::vector<float> result;
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t h = 0; h < heads; ++h) {
      const auto begin = values.begin() + static_cast<int64_t>((h * tokens + t) * d);
      result.insert(result.end(), begin, begin + static_cast<int64_t>(d));
    }
  }
  return result;
}

// Golden outputs with the bounds of the oracle, which is compared on the way.
void ExpectGolden(const BackendCase& backend_case, const SmallProblem& problem,
                  const std::vector<float>& golden_output,
                  const std::vector<float>& golden_log_sum_exp) {
  std::vector<Bounded> output;
  std::vector<Bounded> log_sum_exp;
  const auto d = static_cast<size_t>(problem.shape.head_dim);
  for (int i = 0; i < problem.queries; ++i) {
    for (int head = 0; head < problem.shape.num_heads; ++head) {
      const AttentionRow row =
          AttendExactly(backend_case, problem.options, problem.shape, problem.kv,
                        std::span(problem.q).subspan(log_sum_exp.size() * d, d), head,
                        problem.keys - problem.queries + i);
      log_sum_exp.push_back(row.log_sum_exp);
      output.insert(output.end(), row.output.begin(), row.output.end());
    }
  }
  // The file's inputs have 12 digits where ours have 24 bits.
  for (size_t i = 0; i < output.size(); ++i) {
    EXPECT_NEAR(output[i].value, golden_output[i], 1e-5 * std::fabs(golden_output[i]) + 1e-5);
  }
  for (size_t i = 0; i < golden_log_sum_exp.size(); ++i) {
    EXPECT_NEAR(log_sum_exp[i].value, golden_log_sum_exp[i],
                1e-6 * std::fabs(golden_log_sum_exp[i]) + 1e-5);
  }
  const auto [actual_output, actual_log_sum_exp] = Compute(backend_case, problem);
  ExpectClose(actual_output, output);
  ExpectClose(actual_log_sum_exp, log_sum_exp);
}

TEST_P(PagedAttentionTest, MatchesTheGoldenCases) {
  const GoldenValue cases = GoldenValue("attention.json")["cases"];
  const bool rounds_operands = OperandRounding(GetParam(), DType::kF32) > 0;
  int compared = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    const GoldenValue one = cases[i];
    const std::string name = one["name"].Text();
    SCOPED_TRACE(name);
    if (!one["causal"].Bool() || name == "value_dim_differs") continue;  // Not in the contract.
    // Scores of hundreds are too coarse in bf16 for any bound to show something.
    if (name == "large_scores" && rounds_operands) continue;
    const auto optional = [&](const char* key) {
      return one[key].IsNull() ? std::vector<float>{} : one[key].Floats();
    };
    const auto head_dim = static_cast<size_t>(one["head_dim"].Int());
    const auto queries = static_cast<size_t>(one["queries"].Int());
    const auto keys = static_cast<size_t>(one["keys"].Int());
    const auto heads = static_cast<size_t>(one["heads"].Int());
    const auto kv_heads = static_cast<size_t>(one["kv_heads"].Int());
    SmallProblem problem = {
        .shape = {one["heads"].Int(), one["kv_heads"].Int(), 8},
        .queries = one["queries"].Int(),
        .keys = one["keys"].Int(),
        .q = Padded(TokensFirst(one["q"].Floats(), heads, queries), head_dim, 8),
        .kv = {DType::kF32, Padded(TokensFirst(one["k"].Floats(), kv_heads, keys), head_dim, 8),
               Padded(TokensFirst(one["v"].Floats(), kv_heads, keys), head_dim, 8)},
        .options = {
            .scale = static_cast<float>(one["scale"].Number()),
            .softcap = one["softcap"].IsNull() ? 0.0f : static_cast<float>(one["softcap"].Number()),
            .window = one["window"].IsNull() ? 0 : one["window"].Int(),
            .sinks = optional("sinks"),
            .alibi_slopes = optional("alibi_slopes")}};
    ExpectGolden(GetParam(), problem,
                 Padded(TokensFirst(one["out"].Floats(), heads, queries), head_dim, 8),
                 TokensFirst(one["lse"].Floats(), heads, queries));
    ++compared;
  }
  EXPECT_EQ(compared, rounds_operands ? 13 : 14);
}

TEST_P(PagedAttentionTest, MatchesTheTeachingExamples) {
  const GoldenValue cases = GoldenValue("teaching.json")["cases"];
  int compared = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    const GoldenValue one = cases[i];
    SCOPED_TRACE(one["name"].Text());
    if (!one.Has("q") || !one["causal"].Bool()) continue;
    const size_t tokens = one["q"].size();
    const size_t head_dim = one["q"][0].size();
    if (one["v"][0].size() != head_dim) continue;
    const size_t padded = (head_dim + 7) / 8 * 8;
    const SmallProblem problem = {.shape = {1, 1, static_cast<int>(padded)},
                                  .queries = static_cast<int>(tokens),
                                  .keys = static_cast<int>(tokens),
                                  .q = Padded(one["q"].Floats(), head_dim, padded),
                                  .kv = {DType::kF32, Padded(one["k"].Floats(), head_dim, padded),
                                         Padded(one["v"].Floats(), head_dim, padded)},
                                  .options = {.scale = static_cast<float>(one["scale"].Number())}};
    ExpectGolden(GetParam(), problem, Padded(one["output"].Floats(), head_dim, padded), {});
    ++compared;
  }
  EXPECT_EQ(compared, 2);
}

AttentionOptions EveryOption(const HeadShape& shape) {
  AttentionOptions options = {.scale = ScaleOf(shape.head_dim), .softcap = 20.0f, .window = 290};
  for (int h = 0; h < shape.num_heads; ++h) {
    options.sinks.push_back(static_cast<float>(h) - 1.0f);
    options.alibi_slopes.push_back(0.01f * static_cast<float>(h));
  }
  return options;
}

template <class Iterator>
std::vector<float> Slice(Iterator begin, int64_t first, int64_t count) {
  return {begin + first, begin + first + count};
}

TEST_P(PagedAttentionTest, NeitherChunksNorNeighboursNorThreadsChangeABit) {
  const HeadShape shape = {3, 1, 24};
  constexpr int kContext = 300;
  for (const DType dtype : CacheTypes(GetParam())) {
    for (const AttentionOptions& options :
         {AttentionOptions{.scale = ScaleOf(24)}, EveryOption(shape)}) {
      Scene whole_scene(GetParam(), shape, dtype, {kContext, 40});
      const Scene::Result whole = whole_scene.Run({{0, 0, kContext}}, options);
      for (const int threads : {1, 2}) {
        Scene scene(GetParam(), shape, dtype, {kContext, 40}, threads);
        int position = 0;
        for (const int rows : {1, 15, 17, 100, 123, 1, 1, 42}) {
          // A second sequence comes and goes.
          std::vector<StepPart> parts = {{0, position, rows}};
          if (rows % 2 == 1) parts.insert(parts.begin(), {1, 0, rows % 40 + 1});
          const int before = rows % 2 == 1 ? rows % 40 + 1 : 0;
          const Scene::Result chunk = scene.Run(parts, options);
          EXPECT_EQ(
              Slice(chunk.output.begin(), before * shape.q_columns(), rows * shape.q_columns()),
              Slice(whole.output.begin(), position * shape.q_columns(), rows * shape.q_columns()))
              << "rows from " << position;
          EXPECT_EQ(Slice(chunk.log_sum_exp.begin(), before * 3, rows * 3),
                    Slice(whole.log_sum_exp.begin(), position * 3, rows * 3));
          position += rows;
        }
        EXPECT_EQ(position, kContext);
      }
    }
  }
}

TEST(PagedAttentionInstructionSetTest, AllComputeTheSameBits) {
  for (const Numerics numerics : {Numerics::kExact, Numerics::kFast}) {
    const std::vector<BackendCase> cases = CpuCases(numerics);
    for (const HeadShape& shape : {HeadShape{3, 1, 64}, HeadShape{4, 2, 24}}) {
      for (const DType dtype : CacheTypes(cases.at(0))) {
        for (const AttentionOptions& options :
             {AttentionOptions{.scale = ScaleOf(shape.head_dim)}, EveryOption(shape)}) {
          Scene first(cases.at(0), shape, dtype, Contexts());
          const Scene::Result expected = first.WriteAllThenAttend(LastRows(), options);
          for (const BackendCase& other : cases) {
            Scene scene(other, shape, dtype, Contexts());
            const Scene::Result actual = scene.WriteAllThenAttend(LastRows(), options);
            EXPECT_EQ(actual.output, expected.output) << other.Name();
            EXPECT_EQ(actual.log_sum_exp, expected.log_sum_exp) << other.Name();
          }
        }
      }
    }
  }
}

VITRINE_INSTANTIATE_BACKENDS(PagedAttentionTest);

}  // namespace
}  // namespace vitrine::testing
