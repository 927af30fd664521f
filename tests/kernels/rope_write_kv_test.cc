#include "kernels/rope_write_kv.h"

#include <gtest/gtest.h>

#include <cmath>
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

// One head at one position.
std::vector<Bounded> Rotated(const RopeTables& tables, Rotation rotation, int position,
                             std::span<const float> head) {
  std::vector<Bounded> result;
  for (const float x : head) result.push_back({x, 0});
  const int half = rotation.rotary_dim / 2;
  for (int i = 0; i < half; ++i) {
    const bool interleaved = rotation.pairing == RopePairing::kInterleaved;
    const auto a = static_cast<size_t>(interleaved ? 2 * i : i);
    const auto b = static_cast<size_t>(interleaved ? 2 * i + 1 : i + half);
    const auto entry = static_cast<size_t>(position * half + i);
    const double cosine = tables.cosines[entry];
    const double sine = tables.sines[entry];
    result[a].value = head[a] * cosine - head[b] * sine;
    result[b].value = head[b] * cosine + head[a] * sine;
    // Two products and a sum.
    result[a].error = 2 * kF32Rounding * (std::fabs(head[a] * cosine) + std::fabs(head[b] * sine));
    result[b].error = 2 * kF32Rounding * (std::fabs(head[b] * cosine) + std::fabs(head[a] * sine));
  }
  return result;
}

// Adds what storing as `dtype` and reading back costs.
Bounded Stored(Bounded x, DType dtype) {
  const double rounding = dtype == DType::kBF16 ? kBf16Rounding : 0.0;
  return {x.value, x.error + (rounding + kReadCacheError) * (std::fabs(x.value) + x.error)};
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

void ExpectRotation(const BackendCase& backend_case, const HeadShape& shape, Rotation rotation,
                    DType kv_dtype) {
  SCOPED_TRACE("head_dim " + std::to_string(shape.head_dim) + ", rotary_dim " +
               std::to_string(rotation.rotary_dim) + ", pairing " +
               std::to_string(static_cast<int>(rotation.pairing)) + ", " +
               std::string(TraitsOf(kv_dtype).name));
  Harness harness(backend_case);
  Random random(static_cast<uint32_t>(shape.head_dim));
  const PagedSequences sequences(3, 40, random);
  const std::vector<StepPart> parts = {{2, 15, 3}, {0, 0, 17}, {1, 37, 1}};
  const Step step = sequences.MakeStep(parts);
  const RopeTables tables = MakeTables(40, rotation.rotary_dim, 10000.0);
  const std::vector<float> qkv = random.Normal(step.rows() * shape.qkv_columns());
  KvStorage* kv = harness.NewKv(shape.KvSpec(kv_dtype, sequences.num_blocks(), 2));
  const RopeKvTarget target = TargetOf(harness, tables, rotation, step, shape, kv);
  harness->RopeWriteKv({.qkv = harness.Upload(qkv), .target = target});

  const auto head_dim = static_cast<size_t>(shape.head_dim);
  std::vector<Bounded> q;
  std::vector<Bounded> keys;
  std::vector<Bounded> values;
  std::span<const float> rest = qkv;
  for (const StepPart& part : parts) {
    for (int position = part.first_position; position < part.first_position + part.rows;
         ++position) {
      for (int h = 0; h < shape.num_heads + 2 * shape.num_kv_heads; ++h) {
        const std::span<const float> head = rest.first(head_dim);
        rest = rest.subspan(head_dim);
        const bool is_query = h < shape.num_heads;
        const bool is_value = h >= shape.num_heads + shape.num_kv_heads;
        for (size_t d = 0; is_value && d < head_dim; ++d) {
          values.push_back(Stored({head[d], 0}, kv_dtype));
        }
        if (is_value) continue;
        for (const Bounded& x : Rotated(tables, rotation, position, head)) {
          if (is_query) q.push_back(x);
          if (!is_query) keys.push_back(Stored(x, kv_dtype));
        }
      }
    }
  }
  ExpectClose(harness.Download(target.q), q);
  const CachedRows cached = ReadCache(harness, kv, 1, step);
  ExpectClose(cached.keys, keys);
  ExpectClose(cached.values, values);
}

TEST_P(RopeWriteKvTest, RotatesAndWrites) {
  for (const RopePairing pairing : {RopePairing::kInterleaved, RopePairing::kHalfSplit}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
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

QkvResult ComputeQkv(const BackendCase& backend_case, Route route, DType dtype, DType kv_dtype,
                     int threads, const std::vector<StepPart>& parts) {
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
  const RopeKvTarget target =
      TargetOf(harness, tables, {16, RopePairing::kHalfSplit}, step, shape, kv);
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
    for (const DType kv_dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(TraitsOf(dtype).name);
      ExpectSame(ComputeQkv(GetParam(), Route::kFused, dtype, kv_dtype, 2, TwoSequences()),
                 ComputeQkv(GetParam(), Route::kSeparate, dtype, kv_dtype, 2, TwoSequences()));
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
      const QkvResult expected =
          ComputeQkv(cases.at(0), Route::kFused, dtype, DType::kBF16, 2, TwoSequences());
      for (const BackendCase& other : cases) {
        SCOPED_TRACE(other.Name());
        ExpectSame(ComputeQkv(other, Route::kFused, dtype, DType::kBF16, 2, TwoSequences()),
                   expected);
      }
    }
  }
}

VITRINE_INSTANTIATE_BACKENDS(RopeWriteKvTest);

}  // namespace
}  // namespace vitrine::testing
