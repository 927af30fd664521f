// AttentionRows and AttentionReduce of the reference: what every backend will be compared with.
#include <gtest/gtest.h>

#include <algorithm>
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
#include "kernels/reference/attention_reduce.h"
#include "kernels/reference/attention_rows.h"
#include "tests/kernels/attention_oracle.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/golden.h"
#include "tests/kernels/paged.h"

namespace vitrine::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A batch of two sequences over two layers, written and attended, with what inspection keeps.
struct Traced {
  explicit Traced(const HeadShape& head_shape, const AttentionOptions& attention_options)
      : shape(head_shape), options(attention_options) {
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
    const auto optional = [&](const std::vector<float>& values) {
      return values.empty() ? DeviceSpan<const float>() : harness.Upload(values);
    };
    harness->PagedAttention({.q = step_q,
                             .batch = &step.batch(),
                             .kv = kv,
                             .layer = layer,
                             .num_heads = shape.num_heads,
                             .scale = options.scale,
                             .softcap = options.softcap,
                             .window = layer == 0 ? options.window : 0,
                             .sinks = optional(options.sinks),
                             .alibi_slopes = optional(options.alibi_slopes),
                             .output = output,
                             .log_sum_exp = lse});
    std::vector<float> slice = harness.Download(lse);
    slice.resize(static_cast<size_t>(kCapacity * shape.num_heads));
    log_sum_exp.insert(log_sum_exp.end(), slice.begin(), slice.end());
    outputs.push_back(harness.Read(output, step.rows()));
  }

  // Sequence 0 has positions 0 to 41, of which the last two are in the step; sequence 1 has 0 to 2.
  void KeepStored(int layer, const std::vector<float>& earlier, const std::vector<float>& now) {
    const auto append = [&](SequenceKv& target, const std::vector<float>& qkv, int row) {
      const auto keys = qkv.begin() + row * shape.qkv_columns() + shape.q_columns();
      const auto values = keys + shape.kv_columns();
      target.keys.insert(target.keys.end(), keys, values);
      target.values.insert(target.values.end(), values, values + shape.kv_columns());
    };
    auto& kvs = stored[layer];
    for (int row = 0; row < 40; ++row) append(kvs[0], earlier, row);
    for (int row = 0; row < 2; ++row) append(kvs[0], now, row);
    for (int row = 2; row < 5; ++row) append(kvs[1], now, row);
  }

  std::vector<float> Rows(const std::vector<AttentionItem>& items, AttentionStage stage) {
    std::vector<float> rows(items.size() * kKeyColumns);
    const std::vector<int32_t> windows = {options.window, 0};
    reference::AttentionRows(
        {.q = {q.data(), q.size()},
         .log_sum_exp = {log_sum_exp.data(), log_sum_exp.size()},
         .row_capacity = kCapacity,
         .batch = &step.batch(),
         .kv = kv,
         .num_heads = shape.num_heads,
         .scale = options.scale,
         .softcap = options.softcap,
         .windows = windows,
         .alibi_slopes = {options.alibi_slopes.data(), options.alibi_slopes.size()},
         .items = items,
         .stage = stage,
         .key_columns = kKeyColumns,
         .output = {rows.data(), rows.size()}});
    return rows;
  }

  AttentionRow Oracle(const AttentionItem& item) const {
    const int sequence = item.row < 2 ? 0 : 1;
    AttentionOptions layer_options = options;
    if (item.layer == 1) layer_options.window = 0;
    const auto begin = static_cast<size_t>((item.layer * kCapacity + item.row) * shape.q_columns() +
                                           item.head * shape.head_dim);
    return AttendExactly({.backend = "reference"}, layer_options, shape,
                         stored[item.layer][sequence],
                         std::span(q).subspan(begin, static_cast<size_t>(shape.head_dim)),
                         item.head, PositionOf(item.row));
  }

  static int PositionOf(int row) { return row < 2 ? 40 + row : row - 2; }

  static constexpr int kCapacity = 7;
  static constexpr int kKeyColumns = 45;

  HeadShape shape;
  AttentionOptions options;
  Harness harness{BackendCase{.backend = "reference"}};
  Random random{77};
  PagedSequences sequences{2, 48, random};
  Step prefix = sequences.MakeStep({{0, 0, 40}});
  Step step = sequences.MakeStep({{0, 40, 2}, {1, 0, 3}});
  KvStorage* kv = harness.NewKv(shape.KvSpec(DType::kF32, sequences.num_blocks(), 2));
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

std::vector<AttentionOptions> EveryKind() {
  const std::vector<float> sinks = {0.5f, -1.0f, 2.0f, 0.0f};
  const std::vector<float> slopes = {0.25f, 0.0625f, 0.5f, 0.01f};
  return {{.scale = 0.35f},
          {.scale = 0.35f, .softcap = 1.5f},
          {.scale = 0.35f, .window = 9},
          {.scale = 0.35f, .alibi_slopes = slopes},
          {.scale = 0.7f, .softcap = 4.0f, .window = 17, .sinks = sinks, .alibi_slopes = slopes}};
}

TEST(AttentionRowsTest, WeightsAndScoresMatchTheOracle) {
  for (const AttentionOptions& options : EveryKind()) {
    Traced traced({4, 2, 8}, options);
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

TEST(AttentionRowsTest, WeightsReproduceTheOutputOfAttention) {
  for (const AttentionOptions& options : EveryKind()) {
    Traced traced({4, 2, 8}, options);
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
          const auto element = static_cast<size_t>((key * 2 + item.head / 2) * 8 + d);
          sum += row[static_cast<size_t>(key)] * double{kv.values[element]};
        }
        const auto column = static_cast<size_t>((item.row * 4 + item.head) * 8 + d);
        EXPECT_NEAR(sum, traced.outputs[static_cast<size_t>(item.layer)][column],
                    2 * exact.output[static_cast<size_t>(d)].error);
      }
    }
  }
}

// Six 3-dimensional inputs as q, k and v, causal, scale 1 / sqrt(3) (the inputs are those of
// Raschka, "Build a Large Language Model (From Scratch)", chapter 3).
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

SixTokenRows ComputeSixTokens(const AttentionOptions& options) {
  Harness harness(BackendCase{.backend = "reference"});
  Random random(1);
  const HeadShape shape = {1, 1, 3};
  const PagedSequences sequences(1, 6, random);
  KvStorage* kv = harness.NewKv(shape.KvSpec(DType::kF32, sequences.num_blocks()));
  const Step step = sequences.MakeStep({{0, 0, 6}});
  std::vector<float> qkv;
  for (int t = 0; t < 6; ++t) {
    for (int copy = 0; copy < 3; ++copy) {
      qkv.insert(qkv.end(), SixTokens().begin() + t * 3, SixTokens().begin() + t * 3 + 3);
    }
  }
  const DeviceSpan<float> q = WriteUnrotated(harness, kv, 0, step, shape, qkv);
  const DeviceSpan<float> lse = harness.Zeros(6);
  harness->PagedAttention(
      {.q = q,
       .batch = &step.batch(),
       .kv = kv,
       .num_heads = 1,
       .scale = options.scale,
       .softcap = options.softcap,
       .window = options.window,
       .sinks = options.sinks.empty() ? DeviceSpan<const float>() : harness.Upload(options.sinks),
       .output = harness.NewRows(6, {harness.Identity(3)}),
       .log_sum_exp = lse});
  std::vector<AttentionItem> items;
  for (int row = 0; row < 6; ++row) items.push_back({.row = row});
  const DeviceSpan<float> weights = harness.Zeros(36);
  const std::vector<int32_t> windows = {options.window};
  reference::AttentionRows({.q = q,
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

const float kSixTokenScale = 1.0f / std::sqrt(3.0f);
constexpr double kSevenDigits = 5.1e-8 + 4 * 0x1p-24;  // Of the numbers below, and f32 results.

void ExpectLastRow(const AttentionOptions& options, const std::vector<double>& expected) {
  const std::vector<float> weights = ComputeSixTokens(options).weights;
  for (size_t key = 0; key < 6; ++key) {
    EXPECT_NEAR(weights[30 + key], expected[key], kSevenDigits) << key;
  }
}

TEST(AttentionRowsTest, SixTokensGiveTheKnownWeights) {
  ExpectLastRow({.scale = kSixTokenScale},
                {0.1510854, 0.1965326, 0.1936044, 0.1533262, 0.1243362, 0.1811152});
  ExpectLastRow({.scale = kSixTokenScale, .softcap = 2.0f},
                {0.1521730, 0.1948415, 0.1921986, 0.1543532, 0.1256794, 0.1807544});
  ExpectLastRow({.scale = kSixTokenScale, .window = 3}, {0, 0, 0, 0.3342059, 0.2710164, 0.3947777});
  ExpectLastRow({.scale = kSixTokenScale, .sinks = {0.5f}},
                {0.1287979, 0.1675409, 0.1650447, 0.1307081, 0.1059947, 0.1543978});
}

TEST(AttentionReduceTest, SixTokensGiveTheKnownStatistics) {
  const SixTokenRows six = ComputeSixTokens({.scale = kSixTokenScale});
  std::vector<AttentionRowKeys> rows;
  for (int r = 0; r < 6; ++r) rows.push_back({0, r});
  const std::vector<KeyRange> ranges = {{0, 2}, {2, 4}, {4, 6}, {0, 1}, {5, 6}};
  const std::vector<int32_t> span_begin = {0, 1, 2, 3, 5};
  std::vector<float> stats(6 * kAttentionStats);
  std::vector<uint32_t> top_keys(12);
  std::vector<float> top_values(12);
  std::vector<float> tail(6);
  std::vector<float> spans(24);
  reference::AttentionReduce({.input = {six.weights.data(), 36},
                              .key_columns = 6,
                              .rows = rows,
                              .log_sum_exp = {six.log_sum_exp.data(), 6},
                              .stats = {stats.data(), stats.size()},
                              .top_k = 2,
                              .top_keys = {top_keys.data(), 12},
                              .top_values = {top_values.data(), 12},
                              .tail_mass = {tail.data(), 6},
                              .span_ranges = ranges,
                              .span_begin = span_begin,
                              .span_mass = {spans.data(), 24}});
  // log-sum-exp, entropy, mean distance, weight on key 0.
  const double known[6][4] = {{0.5770616, 0, 0, 1},
                              {1.4123560, 0.6811169, 0.4225984, 0.4225984},
                              {1.8540941, 1.0891823, 0.9066229, 0.2697891},
                              {1.7727987, 1.3811478, 1.4975165, 0.2234910},
                              {1.9471044, 1.6058658, 1.9928608, 0.1858326},
                              {2.2542181, 1.7793532, 2.5533592, 0.1510854}};
  for (size_t r = 0; r < 6; ++r) {
    const std::span<const float> row = std::span(stats).subspan(r * 8, 8);
    EXPECT_NEAR(row[0], known[r][0], 4 * kSevenDigits);
    EXPECT_NEAR(row[1], known[r][1], 4 * kSevenDigits);
    EXPECT_NEAR(row[6], known[r][2], 4 * kSevenDigits);
    EXPECT_NEAR(row[5], known[r][3], kSevenDigits);
    EXPECT_EQ(row[4], six.weights[r * 7]);
    EXPECT_EQ(row[7], static_cast<float>(r + 1));
  }
  EXPECT_EQ(stats[5 * 8 + 3], 1.0f);
  EXPECT_EQ(stats[5 * 8 + 2], six.weights[31]);
  EXPECT_EQ(top_keys[10], 1u);
  EXPECT_EQ(top_keys[11], 2u);
  EXPECT_NEAR(top_values[10], 0.1965326, kSevenDigits);
  EXPECT_NEAR(top_values[11], 0.1936044, kSevenDigits);
  EXPECT_NEAR(tail[5], 0.6098630, 2 * kSevenDigits);
  EXPECT_NEAR(spans[20], 0.3476180, 2 * kSevenDigits);
  EXPECT_NEAR(spans[21], 0.3469306, 2 * kSevenDigits);
  EXPECT_NEAR(spans[22], 0.3054514, 2 * kSevenDigits);
  EXPECT_NEAR(spans[23], 0.1510854 + 0.1811152, 2 * kSevenDigits);
  // The first row sees one key: the second place stays empty.
  EXPECT_EQ(top_keys[0], 0u);
  EXPECT_EQ(top_keys[1], kNoKey);
  EXPECT_EQ(top_values[1], 0.0f);
  EXPECT_EQ(tail[0], 0.0f);
}

TEST(AttentionReduceTest, MembersAreCombinedBeforeAnythingElse) {
  // Two rows of three members; the second row sees keys 1 to 3.
  const std::vector<float> input = {0.5f, 0.25f, 0.25f, 0,    0.0f, 0.75f, 0.25f, 0,
                                    1.0f, 0.0f,  0.0f,  0,    0,    0.5f,  0.25f, 0.25f,
                                    0,    0.25f, 0.25f, 0.5f, 0,    0.0f,  0.0f,  1.0f};
  const std::vector<AttentionRowKeys> rows = {{0, 2}, {1, 3}};
  const std::vector<float> log_sum_exp = {1, 2, 6, -1, 0, 4};
  const auto reduce = [&](AttentionCombine combine, std::vector<float>& combined,
                          std::vector<float>& stats) {
    reference::AttentionReduce({.input = {input.data(), input.size()},
                                .key_columns = 4,
                                .members = 3,
                                .combine = combine,
                                .rows = rows,
                                .log_sum_exp = {log_sum_exp.data(), 6},
                                .combined = {combined.data(), 8},
                                .stats = {stats.data(), 16}});
  };
  std::vector<float> combined(8);
  std::vector<float> stats(16);
  reduce(AttentionCombine::kMean, combined, stats);
  const std::vector<float> mean = {0.5f, 1.0f / 3,  0.5f / 3, 0,
                                   0.0f, 0.75f / 3, 0.5f / 3, 1.75f / 3};
  for (size_t i = 0; i < 8; ++i) EXPECT_FLOAT_EQ(combined[i], mean[i]);
  EXPECT_FLOAT_EQ(stats[0], 3.0f);
  EXPECT_FLOAT_EQ(stats[8], 1.0f);
  EXPECT_EQ(stats[3], 0.0f);
  EXPECT_EQ(stats[8 + 3], 3.0f);
  EXPECT_EQ(stats[8 + 7], 3.0f);
  EXPECT_FLOAT_EQ(stats[8 + 6], 2 * 0.75f / 3 + 0.5f / 3);
  reduce(AttentionCombine::kMax, combined, stats);
  EXPECT_EQ(combined, (std::vector<float>{1.0f, 0.75f, 0.25f, 0, 0, 0.5f, 0.25f, 1.0f}));
  EXPECT_EQ(stats[0], 6.0f);
}

TEST(AttentionReduceTest, TopKTakesTheLowestKeyOnATieAndOnlyAllowedKeys) {
  const std::vector<float> input = {0.1f, 0.2f, 0.2f, 0.1f, 0.2f, 0.2f};
  const std::vector<AttentionRowKeys> rows = {{0, 5}};
  std::vector<uint32_t> keys(4);
  std::vector<float> values(4);
  std::vector<float> tail(1);
  AttentionReduceArgs args = {.input = {input.data(), 6},
                              .key_columns = 6,
                              .rows = rows,
                              .top_k = 4,
                              .top_keys = {keys.data(), 4},
                              .top_values = {values.data(), 4},
                              .tail_mass = {tail.data(), 1}};
  reference::AttentionReduce(args);
  EXPECT_EQ(keys, (std::vector<uint32_t>{1, 2, 4, 5}));
  EXPECT_FLOAT_EQ(tail[0], 0.2f);
  const std::vector<KeyRange> ranges = {{0, 1}, {3, 5}};
  args.top_ranges = ranges;
  reference::AttentionReduce(args);
  EXPECT_EQ(keys, (std::vector<uint32_t>{4, 0, 3, kNoKey}));
  EXPECT_EQ(values, (std::vector<float>{0.2f, 0.1f, 0.1f, 0.0f}));
  EXPECT_FLOAT_EQ(tail[0], 0.6f);
}

}  // namespace
}  // namespace vitrine::testing
