// AttentionRows and AttentionReduce: rows against the oracle and against the attention they
// explain.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention_reduce.h"
#include "kernels/attention_rows.h"
#include "tests/kernels/attention_oracle.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/golden.h"
#include "tests/kernels/paged.h"

namespace vitrine::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A batch of two sequences over two layers, written and attended, with what inspection keeps.
struct Traced {
  Traced(const BackendCase& one, DType dtype, const AttentionOptions& attention_options,
         int threads = 2)
      : backend_case(one), kv_dtype(dtype), options(attention_options), harness(one, threads) {
    for (int layer = 0; layer < 2; ++layer) {
      std::vector<float> earlier = random.Normal(40 * shape.qkv_columns());
      const std::vector<float> now = random.Normal(step.rows() * shape.qkv_columns());
      WriteUnrotated(harness, kv, layer, prefix, shape, earlier);
      const DeviceSpan<float> step_q = WriteUnrotated(harness, kv, layer, step, shape, now);
      // Rows of a step may be fewer than the memory was made for.
      std::vector<float> slice = harness.Download(step_q);
      slice.resize(static_cast<size_t>(kCapacity * shape.q_columns()));
      q.insert(q.end(), slice.begin(), slice.end());
      Attend(layer, step_q);
      KeepStored(layer, earlier, now);
    }
  }

  void Attend(int layer, DeviceSpan<const float> step_q) {
    RowBuffer* output = harness.NewRows(step.rows(), {harness.Identity(shape.q_columns())});
    const DeviceSpan<float> lse = harness.Zeros(int64_t{step.rows()} * shape.num_heads);
    harness->PagedAttention({.q = step_q,
                             .batch = &step.batch(),
                             .kv = kv,
                             .layer = layer,
                             .num_heads = shape.num_heads,
                             .scale = options.scale,
                             .softcap = options.softcap,
                             .window = layer == 0 ? options.window : 0,
                             .sinks = harness.UploadOptional(options.sinks),
                             .alibi_slopes = harness.UploadOptional(options.alibi_slopes),
                             .output = output,
                             .log_sum_exp = lse});
    std::vector<float> slice = harness.Download(lse);
    slice.resize(static_cast<size_t>(kCapacity) * static_cast<size_t>(shape.num_heads));
    log_sum_exp.insert(log_sum_exp.end(), slice.begin(), slice.end());
    outputs.push_back(harness.Read(output, step.rows()));
  }

  // Sequence 0 has positions 0 to 41, of which the last two are in the step; sequence 1 has 0 to 2.
  void KeepStored(int layer, const std::vector<float>& earlier, const std::vector<float>& now) {
    const auto append = [&](SequenceKv& target, const std::vector<float>& qkv, int row) {
      const auto keys = qkv.begin() + row * shape.qkv_columns() + shape.q_columns();
      const auto values = keys + shape.kv_columns();
      const auto end = values + shape.kv_columns();
      const std::vector<float> k = StoredKeys(kv_dtype, shape.head_dim, {keys, values});
      const std::vector<float> v = StoredValues(kv_dtype, {values, end});
      target.dtype = kv_dtype;
      target.keys.insert(target.keys.end(), k.begin(), k.end());
      target.values.insert(target.values.end(), v.begin(), v.end());
    };
    auto& kvs = stored[layer];
    for (int row = 0; row < 40; ++row) append(kvs[0], earlier, row);
    for (int row = 0; row < 2; ++row) append(kvs[0], now, row);
    for (int row = 2; row < 5; ++row) append(kvs[1], now, row);
  }

  std::vector<float> Rows(const std::vector<AttentionItem>& items, AttentionStage stage) {
    const DeviceSpan<float> rows = harness.Zeros(static_cast<int64_t>(items.size()) * kKeyColumns);
    const std::vector<int32_t> windows = {options.window, 0};
    harness->AttentionRows({.q = harness.Upload(q),
                            .log_sum_exp = harness.Upload(log_sum_exp),
                            .row_capacity = kCapacity,
                            .batch = &step.batch(),
                            .kv = kv,
                            .num_heads = shape.num_heads,
                            .scale = options.scale,
                            .softcap = options.softcap,
                            .windows = windows,
                            .alibi_slopes = harness.UploadOptional(options.alibi_slopes),
                            .items = items,
                            .stage = stage,
                            .key_columns = kKeyColumns,
                            .output = rows});
    return harness.Download(rows);
  }

  AttentionRow Oracle(const AttentionItem& item) const {
    const int sequence = item.row < 2 ? 0 : 1;
    AttentionOptions layer_options = options;
    if (item.layer == 1) layer_options.window = 0;
    const auto begin = static_cast<size_t>((item.layer * kCapacity + item.row) * shape.q_columns() +
                                           item.head * shape.head_dim);
    return AttendExactly(backend_case, layer_options, shape, stored[item.layer][sequence],
                         std::span(q).subspan(begin, static_cast<size_t>(shape.head_dim)),
                         item.head, PositionOf(item.row));
  }

  static int PositionOf(int row) { return row < 2 ? 40 + row : row - 2; }

  static constexpr int kCapacity = 7;
  static constexpr int kKeyColumns = 45;

  BackendCase backend_case;
  DType kv_dtype;
  HeadShape shape = {4, 2, 8};
  AttentionOptions options;
  Harness harness;
  Random random{77};
  PagedSequences sequences{2, 48, random};
  Step prefix = sequences.MakeStep({{0, 0, 40}});
  Step step = sequences.MakeStep({{0, 40, 2}, {1, 0, 3}});
  KvStorage* kv = harness.NewKv(shape.KvSpec(kv_dtype, sequences.num_blocks(), 2));
  SequenceKv stored[2][2];
  std::vector<float> q;            // [layers, kCapacity, heads, head_dim]
  std::vector<float> log_sum_exp;  // [layers, kCapacity, heads]
  std::vector<std::vector<float>> outputs;
};

std::vector<AttentionItem> EveryItem(int num_heads) {
  std::vector<AttentionItem> items;
  for (int row = 4; row >= 0; --row) {
    for (int layer = 0; layer < 2; ++layer) {
      for (int head = 0; head < num_heads; ++head) items.push_back({row, layer, head});
    }
  }
  return items;
}

std::vector<std::pair<DType, AttentionOptions>> EveryKind(const BackendCase& backend_case) {
  const std::vector<float> sinks = {0.5f, -1.0f, 2.0f, 0.0f};
  const std::vector<float> slopes = {0.25f, 0.0625f, 0.5f, 0.01f};
  std::vector<std::pair<DType, AttentionOptions>> kinds;
  for (const DType dtype : CacheTypes(backend_case)) {
    kinds.push_back({dtype, {.scale = 0.35f}});
    kinds.push_back({dtype, {.scale = 0.35f, .softcap = 1.5f}});
    kinds.push_back({dtype, {.scale = 0.35f, .window = 9}});
    kinds.push_back({dtype, {.scale = 0.35f, .alibi_slopes = slopes}});
    kinds.push_back(
        {dtype,
         {.scale = 0.7f, .softcap = 4.0f, .window = 17, .sinks = sinks, .alibi_slopes = slopes}});
  }
  return kinds;
}

class AttentionRowsTest : public ::testing::TestWithParam<BackendCase> {};
class AttentionReduceTest : public ::testing::TestWithParam<BackendCase> {};

TEST_P(AttentionRowsTest, WeightsAndScoresMatchTheOracle) {
  for (const auto& [dtype, options] : EveryKind(GetParam())) {
    Traced traced(GetParam(), dtype, options);
    const std::vector<AttentionItem> items = EveryItem(4);
    const std::vector<float> weights = traced.Rows(items, AttentionStage::kWeights);
    const std::vector<float> scores = traced.Rows(items, AttentionStage::kScores);
    for (size_t i = 0; i < items.size(); ++i) {
      const AttentionRow exact = traced.Oracle(items[i]);
      for (size_t key = 0; key < Traced::kKeyColumns; ++key) {
        const size_t at = i * Traced::kKeyColumns + key;
        if (key >= exact.scores.size() || std::isinf(exact.scores[key].value)) {
          EXPECT_EQ(weights[at], 0.0f);
          EXPECT_EQ(scores[at], -kInfinity);
          continue;
        }
        EXPECT_NEAR(weights[at], exact.weights[key].value, exact.weights[key].error);
        EXPECT_NEAR(scores[at], exact.scores[key].value, exact.scores[key].error);
      }
    }
  }
}

TEST_P(AttentionRowsTest, WeightsReproduceTheOutputOfAttention) {
  for (const auto& [dtype, options] : EveryKind(GetParam())) {
    Traced traced(GetParam(), dtype, options);
    const std::vector<AttentionItem> items = EveryItem(4);
    const std::vector<float> weights = traced.Rows(items, AttentionStage::kWeights);
    for (size_t i = 0; i < items.size(); ++i) {
      const AttentionItem& item = items[i];
      const AttentionRow exact = traced.Oracle(item);
      const std::span<const float> row =
          std::span(weights).subspan(i * Traced::kKeyColumns, Traced::kKeyColumns);
      if (options.sinks.empty()) {
        const double sum = std::accumulate(row.begin(), row.end(), 0.0);
        EXPECT_NEAR(sum, 1.0, 2 * exact.log_sum_exp.error);
      }
      const SequenceKv& kv = traced.stored[item.layer][item.row < 2 ? 0 : 1];
      for (int d = 0; d < 8; ++d) {
        double sum = 0;
        for (int key = 0; key <= Traced::PositionOf(item.row); ++key) {
          const auto element = static_cast<size_t>(int64_t{key} * 16 + item.head / 2 * 8 + d);
          sum += row[static_cast<size_t>(key)] * double{kv.values[element]};
        }
        const auto column = static_cast<size_t>(int64_t{item.row} * 32 + item.head * 8 + d);
        EXPECT_NEAR(sum, traced.outputs[static_cast<size_t>(item.layer)][column],
                    2 * exact.output[static_cast<size_t>(d)].error);
      }
    }
  }
}

// Six 3-dimensional inputs as q, k and v, causal, scale 1 / sqrt(3) (the inputs are those of
// Raschka, "Build a Large Language Model (From Scratch)", chapter 3). Heads are padded to 4.
const std::vector<float>& SixTokens() {
  static const auto* const tokens =
      new std::vector<float>{0.43f, 0.15f, 0.89f, 0.55f, 0.87f, 0.66f, 0.57f, 0.85f, 0.64f,
                             0.22f, 0.58f, 0.33f, 0.77f, 0.25f, 0.10f, 0.05f, 0.80f, 0.55f};
  return *tokens;
}

struct SixTokenRows {
  std::vector<float> weights;      // [6, 6]
  std::vector<float> log_sum_exp;  // [6]
};

SixTokenRows ComputeSixTokens(const BackendCase& backend_case, const AttentionOptions& options) {
  Harness harness(backend_case);
  Random random(1);
  const HeadShape shape = {1, 1, 4};
  const PagedSequences sequences(1, 6, random);
  KvStorage* kv = harness.NewKv(shape.KvSpec(DType::kF32, sequences.num_blocks()));
  const Step step = sequences.MakeStep({{0, 0, 6}});
  std::vector<float> qkv;
  for (int t = 0; t < 6; ++t) {
    for (int copy = 0; copy < 3; ++copy) {
      qkv.insert(qkv.end(), SixTokens().begin() + t * 3, SixTokens().begin() + t * 3 + 3);
      qkv.push_back(0.0f);
    }
  }
  const DeviceSpan<float> q = WriteUnrotated(harness, kv, 0, step, shape, qkv);
  const DeviceSpan<float> lse = harness.Zeros(6);
  harness->PagedAttention({.q = q,
                           .batch = &step.batch(),
                           .kv = kv,
                           .num_heads = 1,
                           .scale = options.scale,
                           .softcap = options.softcap,
                           .window = options.window,
                           .sinks = harness.UploadOptional(options.sinks),
                           .output = harness.NewRows(6, {harness.Identity(4)}),
                           .log_sum_exp = lse});
  std::vector<AttentionItem> items;
  for (int row = 0; row < 6; ++row) items.push_back({.row = row});
  const DeviceSpan<float> weights = harness.Zeros(36);
  const std::vector<int32_t> windows = {options.window};
  harness->AttentionRows({.q = q,
                          .log_sum_exp = lse,
                          .row_capacity = 6,
                          .batch = &step.batch(),
                          .kv = kv,
                          .num_heads = 1,
                          .scale = options.scale,
                          .softcap = options.softcap,
                          .windows = windows,
                          .items = items,
                          .key_columns = 6,
                          .output = weights});
  return {harness.Download(weights), harness.Download(lse)};
}

constexpr float kSixTokenScale = 0.577350269f;  // 1 / sqrt(3)
// Of the numbers below; and two dozen roundings from the products of three numbers to a weight.
constexpr double kSevenDigits = 5.1e-8 + 24 * 0x1p-24;

void ExpectLastRow(const BackendCase& backend_case, const AttentionOptions& options,
                   const std::vector<double>& expected) {
  const std::vector<float> weights = ComputeSixTokens(backend_case, options).weights;
  for (size_t key = 0; key < 6; ++key) {
    EXPECT_NEAR(weights[30 + key], expected[key], kSevenDigits) << key;
  }
}

TEST_P(AttentionRowsTest, SixTokensGiveTheKnownWeights) {
  ExpectLastRow(GetParam(), {.scale = kSixTokenScale},
                {0.1510854, 0.1965326, 0.1936044, 0.1533262, 0.1243362, 0.1811152});
  ExpectLastRow(GetParam(), {.scale = kSixTokenScale, .softcap = 2.0f},
                {0.1521730, 0.1948415, 0.1921986, 0.1543532, 0.1256794, 0.1807544});
  ExpectLastRow(GetParam(), {.scale = kSixTokenScale, .window = 3},
                {0, 0, 0, 0.3342059, 0.2710164, 0.3947777});
  ExpectLastRow(GetParam(), {.scale = kSixTokenScale, .sinks = {0.5f}},
                {0.1287979, 0.1675409, 0.1650447, 0.1307081, 0.1059947, 0.1543978});
}

// Everything AttentionReduce can tell about some rows.
struct Reduced {
  std::vector<float> combined;
  std::vector<float> stats;
  std::vector<uint32_t> top_keys;
  std::vector<float> top_values;
  std::vector<float> tail;
  std::vector<float> spans;

  bool operator==(const Reduced&) const = default;
};

struct Request {
  std::vector<float> input{};
  int key_columns = 0;
  int members = 1;
  AttentionCombine combine = AttentionCombine::kMean;
  std::vector<AttentionRowKeys> rows{};
  std::vector<float> log_sum_exp{};
  int top_k = 1;
  std::vector<KeyRange> top_ranges{};
  std::vector<KeyRange> span_ranges = {{0, 1}};
  std::vector<int32_t> span_begin = {0, 1};
};

Reduced Reduce(const BackendCase& backend_case, const Request& request, int threads = 2) {
  Harness harness(backend_case, threads);
  const auto rows = static_cast<int64_t>(request.rows.size());
  const auto spans = static_cast<int64_t>(request.span_begin.size()) - 1;
  const AttentionReduceArgs args = {.input = harness.Upload(request.input),
                                    .key_columns = request.key_columns,
                                    .members = request.members,
                                    .combine = request.combine,
                                    .rows = request.rows,
                                    .log_sum_exp = harness.Upload(request.log_sum_exp),
                                    .combined = harness.Zeros(rows * request.key_columns),
                                    .stats = harness.Zeros(rows * kAttentionStats),
                                    .top_k = request.top_k,
                                    .top_ranges = request.top_ranges,
                                    .top_keys = harness.Keys(rows * request.top_k),
                                    .top_values = harness.Zeros(rows * request.top_k),
                                    .tail_mass = harness.Zeros(rows),
                                    .span_ranges = request.span_ranges,
                                    .span_begin = request.span_begin,
                                    .span_mass = harness.Zeros(rows * spans)};
  harness->AttentionReduce(args);
  return {harness.Download(args.combined),  harness.Download(args.stats),
          harness.Download(args.top_keys),  harness.Download(args.top_values),
          harness.Download(args.tail_mass), harness.Download(args.span_mass)};
}

TEST_P(AttentionReduceTest, SixTokensGiveTheKnownStatistics) {
  const SixTokenRows six = ComputeSixTokens(GetParam(), {.scale = kSixTokenScale});
  Request request = {.input = six.weights,
                     .key_columns = 6,
                     .log_sum_exp = six.log_sum_exp,
                     .top_k = 2,
                     .span_ranges = {{0, 2}, {2, 4}, {4, 6}, {0, 1}, {5, 6}},
                     .span_begin = {0, 1, 2, 3, 5}};
  for (int r = 0; r < 6; ++r) request.rows.push_back({0, r});
  const Reduced reduced = Reduce(GetParam(), request);
  EXPECT_EQ(reduced.combined, six.weights);
  // log-sum-exp, entropy, mean distance, weight on key 0.
  const double known[6][4] = {{0.5770616, 0, 0, 1},
                              {1.4123560, 0.6811169, 0.4225984, 0.4225984},
                              {1.8540941, 1.0891823, 0.9066229, 0.2697891},
                              {1.7727987, 1.3811478, 1.4975165, 0.2234910},
                              {1.9471044, 1.6058658, 1.9928608, 0.1858326},
                              {2.2542181, 1.7793532, 2.5533592, 0.1510854}};
  for (size_t r = 0; r < 6; ++r) {
    const std::span<const float> row = std::span(reduced.stats).subspan(r * 8, 8);
    EXPECT_NEAR(row[0], known[r][0], 4 * kSevenDigits);
    EXPECT_NEAR(row[1], known[r][1], 4 * kSevenDigits);
    EXPECT_NEAR(row[6], known[r][2], 4 * kSevenDigits);
    EXPECT_NEAR(row[5], known[r][3], kSevenDigits);
    EXPECT_EQ(row[4], six.weights[r * 7]);
    EXPECT_EQ(row[7], static_cast<float>(r + 1));
  }
  EXPECT_EQ(reduced.stats[5 * 8 + 3], 1.0f);
  EXPECT_EQ(reduced.stats[5 * 8 + 2], six.weights[31]);
  EXPECT_EQ(reduced.top_keys[10], 1u);
  EXPECT_EQ(reduced.top_keys[11], 2u);
  EXPECT_EQ(reduced.top_values[10], six.weights[31]);
  EXPECT_EQ(reduced.top_values[11], six.weights[32]);
  EXPECT_NEAR(reduced.tail[5], 0.6098630, 2 * kSevenDigits);
  EXPECT_NEAR(reduced.spans[20], 0.3476180, 2 * kSevenDigits);
  EXPECT_NEAR(reduced.spans[21], 0.3469306, 2 * kSevenDigits);
  EXPECT_NEAR(reduced.spans[22], 0.3054514, 2 * kSevenDigits);
  EXPECT_NEAR(reduced.spans[23], 0.1510854 + 0.1811152, 2 * kSevenDigits);
  // The first row sees one key: the second place stays empty.
  EXPECT_EQ(reduced.top_keys[0], 0u);
  EXPECT_EQ(reduced.top_keys[1], kNoKey);
  EXPECT_EQ(reduced.top_values[1], 0.0f);
  EXPECT_EQ(reduced.tail[0], 0.0f);
}

TEST_P(AttentionReduceTest, MembersAreCombinedBeforeAnythingElse) {
  // Two rows of three members; the second row sees keys 1 to 3.
  Request request = {
      .input = {0.5f, 0.25f, 0.25f, 0.0f,  0.0f, 0.75f, 0.25f, 0.0f, 1.0f, 0.0f, 0.0f, 0.0f,
                0.0f, 0.5f,  0.25f, 0.25f, 0.0f, 0.25f, 0.25f, 0.5f, 0.0f, 0.0f, 0.0f, 1.0f},
      .key_columns = 4,
      .members = 3,
      .rows = {{0, 2}, {1, 3}},
      .log_sum_exp = {1, 2, 6, -1, 0, 4}};
  const Reduced mean = Reduce(GetParam(), request);
  const std::vector<float> expected = {0.5f, 1.0f / 3,  0.5f / 3, 0.0f,
                                       0.0f, 0.75f / 3, 0.5f / 3, 1.75f / 3};
  for (size_t i = 0; i < 8; ++i) EXPECT_FLOAT_EQ(mean.combined[i], expected[i]);
  EXPECT_FLOAT_EQ(mean.stats[0], 3.0f);
  EXPECT_FLOAT_EQ(mean.stats[8], 1.0f);
  EXPECT_EQ(mean.stats[3], 0.0f);
  EXPECT_EQ(mean.stats[8 + 3], 3.0f);
  EXPECT_EQ(mean.stats[8 + 5], 0.0f);
  EXPECT_FLOAT_EQ(mean.stats[8 + 6], 2 * 0.75f / 3 + 0.5f / 3);
  EXPECT_EQ(mean.stats[8 + 7], 3.0f);
  request.combine = AttentionCombine::kMax;
  const Reduced max = Reduce(GetParam(), request);
  EXPECT_EQ(max.combined, (std::vector<float>{1.0f, 0.75f, 0.25f, 0, 0, 0.5f, 0.25f, 1.0f}));
  EXPECT_EQ(max.stats[0], 6.0f);
}

TEST_P(AttentionReduceTest, TopKTakesTheLowestKeyOnATieAndOnlyAllowedKeys) {
  Request request = {.input = {0.1f, 0.2f, 0.2f, 0.1f, 0.2f, 0.2f},
                     .key_columns = 6,
                     .rows = {{0, 5}},
                     .log_sum_exp = {0},
                     .top_k = 4};
  const Reduced free = Reduce(GetParam(), request);
  EXPECT_EQ(free.top_keys, (std::vector<uint32_t>{1, 2, 4, 5}));
  EXPECT_FLOAT_EQ(free.tail[0], 0.2f);
  request.top_ranges = {{0, 1}, {3, 5}};
  const Reduced within = Reduce(GetParam(), request);
  EXPECT_EQ(within.top_keys, (std::vector<uint32_t>{4, 0, 3, kNoKey}));
  EXPECT_EQ(within.top_values, (std::vector<float>{0.2f, 0.1f, 0.1f, 0.0f}));
  EXPECT_FLOAT_EQ(within.tail[0], 0.6f);
}

// Weights of long rows, each with a sum of 1.
Request LongRows(Random& random) {
  constexpr int kColumns = 700;
  Request request = {.key_columns = kColumns,
                     .members = 2,
                     .log_sum_exp = random.Normal(2 * 9),
                     .top_k = 16,
                     .span_ranges = {{0, 10}, {300, 650}, {11, 12}},
                     .span_begin = {0, 2, 3}};
  for (int r = 0; r < 9; ++r) {
    const AttentionRowKeys keys = {70 * r, 60 + 70 * r + 3 * r};
    request.rows.push_back(keys);
    for (int member = 0; member < 2; ++member) {
      std::vector<float> row(kColumns);
      double sum = 0;
      for (int key = keys.first_key; key <= keys.position; ++key) {
        row[static_cast<size_t>(key)] = std::exp(random.Normal(1, 2.0f)[0]);
        sum += row[static_cast<size_t>(key)];
      }
      for (float& weight : row) weight = static_cast<float>(weight / sum);
      request.input.insert(request.input.end(), row.begin(), row.end());
    }
  }
  return request;
}

TEST_P(AttentionReduceTest, ThreadsAndNeighboursChangeNoBit) {
  Random random(61);
  const Request request = LongRows(random);
  const Reduced reduced = Reduce(GetParam(), request);
  EXPECT_TRUE(Reduce(GetParam(), request, 1) == reduced);
  Request last = request;
  last.rows = {request.rows.back()};
  last.input.assign(request.input.end() - 1400, request.input.end());
  last.log_sum_exp.assign(request.log_sum_exp.end() - 2, request.log_sum_exp.end());
  const Reduced alone = Reduce(GetParam(), last);
  EXPECT_EQ(alone.stats, std::vector<float>(reduced.stats.end() - 8, reduced.stats.end()));
  EXPECT_EQ(alone.spans, std::vector<float>(reduced.spans.end() - 2, reduced.spans.end()));
}

TEST_P(AttentionReduceTest, LongRowsMatchTheReference) {
  Random random(62);
  const Request request = LongRows(random);
  const Reduced expected = Reduce({.backend = "reference"}, request);
  const Reduced actual = Reduce(GetParam(), request);
  // Sums of up to 700 positive terms in f32; distances weigh them with up to 100.
  constexpr double kSum = 700 * kF32Rounding;
  for (size_t i = 0; i < expected.stats.size(); ++i) {
    EXPECT_NEAR(actual.stats[i], expected.stats[i],
                2 * kSum * (1 + std::fabs(double{expected.stats[i]})))
        << i;
  }
  EXPECT_EQ(actual.top_keys, expected.top_keys);
  for (size_t i = 0; i < expected.tail.size(); ++i) {
    EXPECT_NEAR(actual.tail[i], expected.tail[i], 2 * kSum);
  }
  for (size_t i = 0; i < expected.spans.size(); ++i) {
    EXPECT_NEAR(actual.spans[i], expected.spans[i], 2 * kSum);
  }
}

TEST_P(AttentionRowsTest, ThreadsChangeNoBit) {
  for (const auto& [dtype, options] : EveryKind(GetParam())) {
    Traced one(GetParam(), dtype, options, 1);
    Traced two(GetParam(), dtype, options, 2);
    EXPECT_EQ(one.Rows(EveryItem(4), AttentionStage::kWeights),
              two.Rows(EveryItem(4), AttentionStage::kWeights));
  }
}

TEST(AttentionInspectionInstructionSetTest, AllComputeTheSameBits) {
  for (const Numerics numerics : {Numerics::kExact, Numerics::kFast}) {
    const std::vector<BackendCase> cases = CpuCases(numerics);
    for (const BackendCase& other : cases) {
      SCOPED_TRACE(other.Name());
      for (const auto& [dtype, options] : EveryKind(other)) {
        Traced first(cases.at(0), dtype, options);
        Traced traced(other, dtype, options);
        EXPECT_EQ(traced.Rows(EveryItem(4), AttentionStage::kWeights),
                  first.Rows(EveryItem(4), AttentionStage::kWeights));
      }
      Random random(63);
      const Request request = LongRows(random);
      EXPECT_TRUE(Reduce(other, request) == Reduce(cases.at(0), request));
    }
  }
}

VITRINE_INSTANTIATE_BACKENDS(AttentionRowsTest);
VITRINE_INSTANTIATE_BACKENDS(AttentionReduceTest);

}  // namespace
}  // namespace vitrine::testing
