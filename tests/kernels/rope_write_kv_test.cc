#include "kernels/rope_write_kv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/kernels/backends.h"
#include "tests/kernels/golden.h"
#include "tests/kernels/paged.h"

namespace vitrine::testing {
namespace {

class RopeWriteKvTest : public ::testing::TestWithParam<BackendCase> {};

struct RopeTables {
  std::vector<float> cosines;  // [positions, rotary_dim / 2]
  std::vector<float> sines;
};

RopeTables MakeTables(int positions, int rotary_dim, double theta) {
  RopeTables tables;
  for (int p = 0; p < positions; ++p) {
    for (int i = 0; i < rotary_dim / 2; ++i) {
      const double angle = p * std::pow(theta, -2.0 * i / rotary_dim);
      tables.cosines.push_back(static_cast<float>(std::cos(angle)));
      tables.sines.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return tables;
}

struct Rotation {
  int rotary_dim;
  RopePairing pairing;
};

// x * cosine + y * sine: two products and a sum.
Bounded Rotation2D(Bounded x, double cosine, Bounded y, double sine) {
  const double magnitude = std::fabs(x.value * cosine) + std::fabs(y.value * sine);
  return {x.value * cosine + y.value * sine,
          x.error * std::fabs(cosine) + y.error * std::fabs(sine) + 2 * kF32Rounding * magnitude};
}

// One head at one position.
std::vector<Bounded> Rotated(const RopeTables& tables, Rotation rotation, int position,
                             std::span<const Bounded> head) {
  std::vector<Bounded> result(head.begin(), head.end());
  const int half = rotation.rotary_dim / 2;
  for (int i = 0; i < half; ++i) {
    const bool interleaved = rotation.pairing == RopePairing::kInterleaved;
    const auto a = static_cast<size_t>(interleaved ? 2 * i : i);
    const auto b = static_cast<size_t>(interleaved ? 2 * i + 1 : i + half);
    const auto entry = static_cast<size_t>(int64_t{position} * half + i);
    const double cosine = tables.cosines[entry];
    const double sine = tables.sines[entry];
    result[a] = Rotation2D(head[a], cosine, head[b], -sine);
    result[b] = Rotation2D(head[b], cosine, head[a], sine);
  }
  return result;
}

// Adds what storing as `dtype` and reading back costs.
Bounded Stored(Bounded x, DType dtype) {
  const double rounding = dtype == DType::kF32 ? 0.0 : kBf16Rounding;
  return {x.value, x.error + (rounding + kReadCacheError) * (std::fabs(x.value) + x.error)};
}

// Keys of a kQ8_0 cache are whole multiples of 1/127 of the largest of 16 dimensions.
void AddInt8Rounding(int head_dim, std::vector<Bounded>& keys) {
  const auto columns = static_cast<size_t>(head_dim);
  for (size_t head = 0; head < keys.size(); head += columns) {
    for (size_t begin = 0; begin < columns; begin += 16) {
      const auto group =
          std::span(keys).subspan(head + begin, std::min<size_t>(16, columns - begin));
      double largest = 0;
      for (const Bounded& key : group)
        largest = std::max(largest, std::fabs(key.value) + key.error);
      for (Bounded& key : group) key.error += largest / 254;
    }
  }
}

RopeKvTarget TargetOf(Harness& harness, const RopeTables& tables, Rotation rotation,
                      const Step& step, const HeadShape& shape, KvStorage* kv) {
  return {.cosines = harness.Upload(tables.cosines),
          .sines = harness.Upload(tables.sines),
          .rotary_dim = rotation.rotary_dim,
          .pairing = rotation.pairing,
          .batch = &step.batch(),
          .num_heads = shape.num_heads,
          .kv = kv,
          .layer = 1,
          .q = harness.Zeros(step.rows() * shape.q_columns())};
}

// What happens to q and k before the rotation; empty weights mean no norm.
struct HeadNorms {
  std::vector<float> q{};
  std::vector<float> k{};
  float epsilon = 1e-5f;
  float clip = 0.0f;
  HeadNormKind kind = HeadNormKind::kRms;
  std::vector<float> q_bias{};
  std::vector<float> k_bias{};
};

// Heads of one row, each around its mean. The mean is off by the roundings of the input's own
// magnitude, which the division by a small deviation magnifies.
std::vector<Bounded> Centred(std::span<const float> heads, size_t head_dim,
                             const std::vector<float>& weight, const std::vector<float>& bias,
                             float epsilon) {
  const auto count = static_cast<double>(head_dim);
  std::vector<Bounded> result;
  for (size_t begin = 0; begin < heads.size(); begin += head_dim) {
    double mean = 0;
    double magnitude = 0;
    double variance = 0;
    for (const float x : heads.subspan(begin, head_dim)) mean += x / count;
    for (const float x : heads.subspan(begin, head_dim)) {
      variance += (x - mean) * (x - mean) / count;
      magnitude += std::fabs(x) / count;
    }
    const double scale = 1 / std::sqrt(variance + double{epsilon});
    const double shift = (count + 2) * kF32Rounding * magnitude * scale;
    for (size_t i = begin; i < begin + head_dim; ++i) {
      const double w = weight[i % weight.size()];
      const double b = bias.empty() ? 0.0 : double{bias[i % bias.size()]};
      const double y = (heads[i] - mean) * scale * w;
      const double error = (std::fabs(y) * (count / 2 + 8) + std::fabs(y + b)) * kF32Rounding;
      result.push_back({y + b, error + 2 * shift * std::fabs(w)});
    }
  }
  return result;
}

// Heads of one row, normalised in pieces as long as the weight.
std::vector<Bounded> Normalized(std::span<const float> heads, const std::vector<float>& weight,
                                float epsilon) {
  std::vector<Bounded> result;
  for (const float x : heads) result.push_back({x, 0});
  for (size_t begin = 0; !weight.empty() && begin < heads.size(); begin += weight.size()) {
    double squares = 0;
    for (size_t i = 0; i < weight.size(); ++i) squares += std::pow(heads[begin + i], 2.0);
    const auto count = static_cast<double>(weight.size());
    const double scale = 1 / std::sqrt(squares / count + double{epsilon});
    for (size_t i = 0; i < weight.size(); ++i) {
      const double y = heads[begin + i] * scale * weight[i];
      result[begin + i] = {y, std::fabs(y) * (count / 2 + 8) * kF32Rounding};
    }
  }
  return result;
}

void ExpectRotation(const BackendCase& backend_case, const HeadShape& shape, Rotation rotation,
                    DType kv_dtype, const HeadNorms& norms = {}) {
  SCOPED_TRACE("head_dim " + std::to_string(shape.head_dim) + ", rotary_dim " +
               std::to_string(rotation.rotary_dim) + ", pairing " +
               std::to_string(static_cast<int>(rotation.pairing)) + ", " +
               std::string(TraitsOf(kv_dtype).name) + ", norms of " +
               std::to_string(norms.q.size()) + " and " + std::to_string(norms.k.size()));
  Harness harness(backend_case);
  Random random(static_cast<uint32_t>(shape.head_dim));
  const PagedSequences sequences(3, 40, random);
  const std::vector<StepPart> parts = {{2, 15, 3}, {0, 0, 17}, {1, 37, 1}};
  const Step step = sequences.MakeStep(parts);
  const RopeTables tables = MakeTables(40, rotation.rotary_dim, 10000.0);
  const std::vector<float> qkv = random.Normal(step.rows() * shape.qkv_columns());
  KvStorage* kv = harness.NewKv(shape.KvSpec(kv_dtype, sequences.num_blocks(), 2));
  RopeKvTarget target = TargetOf(harness, tables, rotation, step, shape, kv);
  if (!norms.q.empty()) target.q_norm = harness.Upload(norms.q);
  if (!norms.k.empty()) target.k_norm = harness.Upload(norms.k);
  if (!norms.q_bias.empty()) target.q_norm_bias = harness.Upload(norms.q_bias);
  if (!norms.k_bias.empty()) target.k_norm_bias = harness.Upload(norms.k_bias);
  target.norm_kind = norms.kind;
  target.norm_epsilon = norms.epsilon;
  target.clip = norms.clip;
  harness->RopeWriteKv({.qkv = harness.Upload(qkv), .target = target});

  std::vector<float> clipped = qkv;
  for (float& value : clipped) {
    if (norms.clip > 0.0f) value = std::clamp(value, -norms.clip, norms.clip);
  }
  std::vector<Bounded> q;
  std::vector<Bounded> keys;
  std::vector<Bounded> values;
  std::span<const float> rest = clipped;
  const auto take = [&](int64_t columns) {
    const std::span<const float> heads = rest.first(static_cast<size_t>(columns));
    rest = rest.subspan(static_cast<size_t>(columns));
    return heads;
  };
  const auto normalize = [&](int64_t columns, const std::vector<float>& weight,
                             const std::vector<float>& bias) {
    if (norms.kind == HeadNormKind::kRms) return Normalized(take(columns), weight, norms.epsilon);
    return Centred(take(columns), static_cast<size_t>(shape.head_dim), weight, bias, norms.epsilon);
  };
  const auto rotate = [&](std::span<const Bounded> heads, int position,
                          std::vector<Bounded>& target_values) {
    for (size_t begin = 0; begin < heads.size(); begin += static_cast<size_t>(shape.head_dim)) {
      const std::vector<Bounded> rotated = Rotated(
          tables, rotation, position, heads.subspan(begin, static_cast<size_t>(shape.head_dim)));
      target_values.insert(target_values.end(), rotated.begin(), rotated.end());
    }
  };
  for (const StepPart& part : parts) {
    for (int i = 0; i < part.rows; ++i) {
      const int position = part.first_position + i;
      rotate(normalize(shape.q_columns(), norms.q, norms.q_bias), position, q);
      rotate(normalize(shape.kv_columns(), norms.k, norms.k_bias), position, keys);
      for (const float value : take(shape.kv_columns())) values.push_back({value, 0});
    }
  }
  for (Bounded& key : keys) key = Stored(key, kv_dtype);
  if (kv_dtype == DType::kQ8_0) AddInt8Rounding(shape.head_dim, keys);
  for (Bounded& value : values) value = Stored(value, kv_dtype);
  ExpectClose(harness.Download(target.q), q);
  const CachedRows cached = ReadCache(harness, kv, 1, step);
  ExpectClose(cached.keys, keys);
  ExpectClose(cached.values, values);
}

TEST_P(RopeWriteKvTest, RotatesAndWrites) {
  for (const RopePairing pairing : {RopePairing::kInterleaved, RopePairing::kHalfSplit}) {
    for (const DType dtype : CacheTypes(GetParam())) {
      ExpectRotation(GetParam(), {3, 1, 8}, {8, pairing}, dtype);
      ExpectRotation(GetParam(), {4, 2, 16}, {4, pairing}, dtype);
      ExpectRotation(GetParam(), {2, 2, 24}, {24, pairing}, dtype);
      ExpectRotation(GetParam(), {8, 1, 64}, {64, pairing}, dtype);
      ExpectRotation(GetParam(), {2, 1, 80}, {20, pairing}, dtype);
      ExpectRotation(GetParam(), {1, 1, 128}, {128, pairing}, dtype);
    }
  }
}

TEST_P(RopeWriteKvTest, WithoutRotaryDimensionsEverythingPassesThrough) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    ExpectRotation(GetParam(), {3, 1, 8}, {0, RopePairing::kInterleaved}, dtype);
  }
}

TEST_P(RopeWriteKvTest, NormalisesHeadsBeforeTheRotation) {
  Random random(43);
  const HeadShape shape = {4, 2, 24};
  for (const RopePairing pairing : {RopePairing::kInterleaved, RopePairing::kHalfSplit}) {
    ExpectRotation(GetParam(), shape, {24, pairing}, DType::kF32,
                   {.q = random.Normal(24), .k = random.Normal(24)});
    ExpectRotation(GetParam(), shape, {8, pairing}, DType::kF32,
                   {.q = random.Normal(4 * 24), .k = random.Normal(2 * 24)});
    ExpectRotation(GetParam(), {2, 1, 64}, {64, pairing}, DType::kBF16,
                   {.q = random.Normal(64), .k = random.Normal(64)});
    ExpectRotation(GetParam(), {2, 1, 64}, {64, pairing}, DType::kF32,
                   {.q = random.Normal(64), .k = random.Normal(64), .epsilon = 0.1f});
  }
}

TEST_P(RopeWriteKvTest, NormalisesHeadsAroundTheirMeans) {
  Random random(44);
  for (const RopePairing pairing : {RopePairing::kInterleaved, RopePairing::kHalfSplit}) {
    for (const int head_dim : {8, 24, 64}) {
      HeadNorms norms = {
          .q = random.Normal(head_dim), .k = random.Normal(head_dim), .kind = HeadNormKind::kLayer};
      ExpectRotation(GetParam(), {4, 2, head_dim}, {8, pairing}, DType::kF32, norms);
      norms.q_bias = random.Normal(head_dim);
      norms.k_bias = random.Normal(head_dim);
      norms.epsilon = 0.1f;
      ExpectRotation(GetParam(), {4, 2, head_dim}, {head_dim, pairing}, DType::kBF16, norms);
      norms.q = random.Normal(4 * head_dim);
      norms.k = random.Normal(2 * head_dim);
      norms.q_bias = random.Normal(4 * head_dim);
      norms.k_bias.clear();
      ExpectRotation(GetParam(), {4, 2, head_dim}, {head_dim, pairing}, DType::kF32, norms);
    }
  }
}

TEST_P(RopeWriteKvTest, ClipsQueriesKeysAndValues) {
  for (const RopePairing pairing : {RopePairing::kInterleaved, RopePairing::kHalfSplit}) {
    ExpectRotation(GetParam(), {4, 2, 24}, {8, pairing}, DType::kF32, {.clip = 0.5f});
    ExpectRotation(GetParam(), {2, 1, 64}, {64, pairing}, DType::kBF16, {.clip = 1.0f});
    ExpectRotation(GetParam(), {2, 1, 16}, {0, pairing}, DType::kF32, {.clip = 0.25f});
  }
}

// A model that has gone wrong must show it, not answer with the bound. Keys and values are read
// through attention, which spreads NaN over a head and from keys to values, so only one of the
// three has it at a time.
TEST_P(RopeWriteKvTest, ClippingKeepsNanAndBoundsInfinity) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const HeadShape shape = {1, 1, 16};
  const auto dim = static_cast<size_t>(shape.head_dim);
  const auto is_nan = [](float x) { return std::isnan(x); };
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (size_t broken = 0; broken < 3; ++broken) {
      SCOPED_TRACE("part " + std::to_string(broken) + ", " + std::string(TraitsOf(dtype).name));
      Harness harness(GetParam());
      Random random(7);
      const PagedSequences sequences(1, 16, random);
      const Step step = sequences.MakeStep({{0, 0, 1}});
      KvStorage* kv = harness.NewKv(shape.KvSpec(dtype, sequences.num_blocks(), 2));
      // Without a rotation, which would mix the dimensions.
      RopeKvTarget target =
          TargetOf(harness, RopeTables(), {0, RopePairing::kHalfSplit}, step, shape, kv);
      target.clip = 0.5f;
      std::vector<float> qkv(3 * dim, 0.25f);
      for (size_t part = 0; part < 3; ++part) {
        qkv[part * dim + 2] = kInfinity;
        qkv[part * dim + 5] = -kInfinity;
      }
      qkv[broken * dim + 9] = std::numeric_limits<float>::quiet_NaN();
      harness->RopeWriteKv({.qkv = harness.Upload(qkv), .target = target});

      const CachedRows cached = ReadCache(harness, kv, 1, step);
      const std::vector<float> parts[] = {harness.Download(target.q), cached.keys, cached.values};
      for (size_t part = 0; part < 3; ++part) {
        if (part == broken) {
          EXPECT_TRUE(std::ranges::any_of(parts[part], is_nan));
          if (part == 1) break;
          continue;
        }
        for (size_t i = 0; i < dim; ++i) {
          const float expected = std::clamp(qkv[part * dim + i], -0.5f, 0.5f);
          EXPECT_NEAR(parts[part][i], expected, kReadCacheError) << part << ", " << i;
        }
      }
    }
  }
}

// The file's heads are not multiples of 8; dimensions beyond rotary_dim pass through, so zeros
// behind them change nothing.
TEST_P(RopeWriteKvTest, MatchesTheGoldenRotations) {
  const GoldenValue cases = GoldenValue("rope.json")["apply"];
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(cases[i]["name"].Text());
    const int rotary_dim = cases[i]["rotary_dim"].Int();
    const auto file_dim = static_cast<size_t>(cases[i]["head_dim"].Int());
    const HeadShape shape = {1, 1, (cases[i]["head_dim"].Int() + 7) / 8 * 8};
    const std::vector<float> x = cases[i]["x"].Floats();
    const std::vector<double> positions = cases[i]["positions"].Doubles();
    const RopeTables tables = MakeTables(9000, rotary_dim, cases[i]["theta"].Number());
    for (const RopePairing pairing : {RopePairing::kInterleaved, RopePairing::kHalfSplit}) {
      const bool interleaved = pairing == RopePairing::kInterleaved;
      const std::vector<double> golden =
          cases[i][interleaved ? "interleaved" : "half_split"].Doubles();
      Harness harness(GetParam());
      for (size_t r = 0; r < positions.size(); ++r) {
        const Step step({0, 1}, {static_cast<int32_t>(positions[r])}, std::vector<int32_t>(600, 2),
                        600);
        std::vector<float> head(static_cast<size_t>(shape.head_dim));
        std::copy_n(x.begin() + static_cast<int64_t>(r * file_dim), file_dim, head.begin());
        std::vector<float> qkv;
        for (int copy = 0; copy < 3; ++copy) qkv.insert(qkv.end(), head.begin(), head.end());
        KvStorage* kv = harness.NewKv(shape.KvSpec(DType::kF32, 600, 2));
        const RopeKvTarget target =
            TargetOf(harness, tables, {rotary_dim, pairing}, step, shape, kv);
        harness->RopeWriteKv({.qkv = harness.Upload(qkv), .target = target});
        std::vector<Bounded> expected(head.size());
        double norm = 0;
        for (const float element : head) norm += std::fabs(element);
        for (size_t d = 0; d < file_dim; ++d) {
          // Products, sum, and the f32 forms of x, cos and sin.
          expected[d] = {golden[r * file_dim + d], 6 * kF32Rounding * norm};
        }
        ExpectClose(harness.Download(target.q), expected);
        for (Bounded& element : expected) element = Stored(element, DType::kF32);
        ExpectClose(ReadCache(harness, kv, 1, step).keys, expected);
      }
    }
  }
}

TEST_P(RopeWriteKvTest, OtherSequencesLayersAndPositionsAreLeftAlone) {
  Harness harness(GetParam());
  Random random(41);
  const HeadShape shape = {2, 1, 16};
  const PagedSequences sequences(2, 64, random);
  KvStorage* kv = harness.NewKv(shape.KvSpec(DType::kF32, sequences.num_blocks(), 3));
  const Step all = sequences.MakeStep({{0, 0, 64}, {1, 0, 64}});
  for (int layer = 0; layer < 3; ++layer) {
    WriteUnrotated(harness, kv, layer, all, shape, random.Normal(all.rows() * shape.qkv_columns()));
  }
  std::vector<CachedRows> before;
  for (int layer = 0; layer < 3; ++layer) before.push_back(ReadCache(harness, kv, layer, all));
  const Step step = sequences.MakeStep({{1, 15, 18}});
  const std::vector<float> qkv = random.Normal(step.rows() * shape.qkv_columns());
  WriteUnrotated(harness, kv, 1, step, shape, qkv);
  for (int layer = 0; layer < 3; ++layer) {
    const CachedRows after = ReadCache(harness, kv, layer, all);
    for (size_t row = 0; row < 128; ++row) {
      const bool is_written = layer == 1 && row >= 64 + 15 && row < 64 + 33;
      for (size_t d = 0; d < 16; ++d) {
        const size_t i = row * 16 + d;
        EXPECT_EQ(after.values[i] == before[static_cast<size_t>(layer)].values[i], !is_written);
        EXPECT_EQ(after.keys[i] == before[static_cast<size_t>(layer)].keys[i], !is_written);
      }
    }
  }
}

struct QkvResult {
  std::vector<float> q;
  CachedRows cached;
};

enum class Route { kFused, kSeparate };
enum class Norms { kNone, kPerHead, kLayer, kClip };

QkvResult ComputeQkv(const BackendCase& backend_case, Route route, DType dtype, DType kv_dtype,
                     int threads, const std::vector<StepPart>& parts, Norms norms = Norms::kNone) {
  constexpr int64_t kColumns = 64;
  const HeadShape shape = {3, 1, 16};
  Harness harness(backend_case, threads);
  Random random(42);
  const PagedSequences sequences(2, 32, random);
  const Step step = sequences.MakeStep(parts);
  const Weights q = RandomWeights(dtype, shape.q_columns(), kColumns, random);
  const Weights k = RandomWeights(dtype, shape.kv_columns(), kColumns, random);
  const Weights v = RandomWeights(dtype, shape.kv_columns(), kColumns, random);
  const std::vector<float> bias = random.Normal(shape.qkv_columns());
  const RopeTables tables = MakeTables(32, 16, 10000.0);
  // One input row for every sequence and position, so that any cut into steps reads the same rows.
  const std::vector<float> rows = random.Normal(2 * 32 * kColumns);
  std::vector<float> input;
  for (const StepPart& part : parts) {
    const auto begin = rows.begin() + (part.sequence * 32 + part.first_position) * kColumns;
    input.insert(input.end(), begin, begin + part.rows * kColumns);
  }
  KvStorage* kv = harness.NewKv(shape.KvSpec(kv_dtype, sequences.num_blocks(), 2));
  RopeKvTarget target = TargetOf(harness, tables, {16, RopePairing::kHalfSplit}, step, shape, kv);
  if (norms == Norms::kPerHead) {
    target.q_norm = harness.Upload(random.Normal(16));
    target.k_norm = harness.Upload(random.Normal(16));
    target.norm_epsilon = 1e-5f;
  }
  if (norms == Norms::kLayer) {
    target.norm_kind = HeadNormKind::kLayer;
    target.q_norm = harness.Upload(random.Normal(shape.q_columns()));
    target.k_norm = harness.Upload(random.Normal(shape.kv_columns()));
    target.q_norm_bias = harness.Upload(random.Normal(shape.q_columns()));
    target.norm_epsilon = 1e-5f;
  }
  if (norms == Norms::kClip) target.clip = 0.75f;
  if (route == Route::kFused) {
    const PackedMatrix* packed = harness.Pack({&q, &k, &v}, RowLayout::kHeads, shape.head_dim);
    const FedRows fed = harness.Feed(input, kColumns, {packed});
    harness->MatMulRopeWriteKv(
        {.input = fed.rows, .weight = packed, .bias = harness.Upload(bias), .target = target});
  } else {
    const PackedMatrix* packed = harness.Pack({&q, &k, &v});
    const FedRows fed = harness.Feed(input, kColumns, {packed});
    const DeviceSpan<float> qkv = harness.Zeros(step.rows() * shape.qkv_columns());
    harness->MatMul({.input = fed.rows,
                     .weight = packed,
                     .bias = harness.Upload(bias),
                     .output = qkv,
                     .rows = step.rows()});
    harness->RopeWriteKv({.qkv = qkv, .target = target});
  }
  return {harness.Download(target.q), ReadCache(harness, kv, 1, step)};
}

void ExpectSame(const QkvResult& a, const QkvResult& b) {
  EXPECT_EQ(a.q, b.q);
  EXPECT_EQ(a.cached.keys, b.cached.keys);
  EXPECT_EQ(a.cached.values, b.cached.values);
}

const std::vector<StepPart>& TwoSequences() {
  static const auto* const parts = new std::vector<StepPart>{{1, 9, 2}, {0, 0, 19}};
  return *parts;
}

TEST_P(RopeWriteKvTest, FusingWithTheMatMulChangesNoBit) {
  for (const DType dtype : kRequiredTypes) {
    for (const DType kv_dtype : CacheTypes(GetParam())) {
      SCOPED_TRACE(TraitsOf(dtype).name);
      for (const Norms norms : {Norms::kNone, Norms::kPerHead, Norms::kLayer, Norms::kClip}) {
        ExpectSame(
            ComputeQkv(GetParam(), Route::kFused, dtype, kv_dtype, 2, TwoSequences(), norms),
            ComputeQkv(GetParam(), Route::kSeparate, dtype, kv_dtype, 2, TwoSequences(), norms));
      }
    }
  }
}

TEST_P(RopeWriteKvTest, NeitherThreadsNorNeighboursChangeABit) {
  const QkvResult together =
      ComputeQkv(GetParam(), Route::kFused, DType::kQ4_1, DType::kBF16, 2, TwoSequences());
  ExpectSame(ComputeQkv(GetParam(), Route::kFused, DType::kQ4_1, DType::kBF16, 1, TwoSequences()),
             together);
  const QkvResult alone =
      ComputeQkv(GetParam(), Route::kFused, DType::kQ4_1, DType::kBF16, 2, {{1, 10, 1}});
  // Row 1 of the step above.
  EXPECT_EQ(alone.q, std::vector<float>(together.q.begin() + 48, together.q.begin() + 96));
  const std::vector<float>& keys = together.cached.keys;
  EXPECT_EQ(alone.cached.keys, std::vector<float>(keys.begin() + 16, keys.begin() + 32));
}

TEST(RopeWriteKvInstructionSetTest, AllComputeTheSameBits) {
  for (const Numerics numerics : {Numerics::kExact, Numerics::kFast}) {
    const std::vector<BackendCase> cases = CpuCases(numerics);
    for (const DType dtype : {DType::kF32, DType::kQ4_1}) {
      for (const Norms norms : {Norms::kNone, Norms::kLayer}) {
        const QkvResult expected =
            ComputeQkv(cases.at(0), Route::kFused, dtype, DType::kBF16, 2, TwoSequences(), norms);
        for (const BackendCase& other : cases) {
          SCOPED_TRACE(other.Name());
          ExpectSame(
              ComputeQkv(other, Route::kFused, dtype, DType::kBF16, 2, TwoSequences(), norms),
              expected);
        }
      }
    }
  }
}

VITRINE_INSTANTIATE_BACKENDS(RopeWriteKvTest);

}  // namespace
}  // namespace vitrine::testing
