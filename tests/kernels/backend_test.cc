#include "kernels/backend.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/backend_factory.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/paged.h"

namespace vitrine::testing {
namespace {

TEST(BackendFactoryTest, RefusesWhatItDoesNotKnow) {
  const absl::Status unknown = CreateBackend("gpu", {}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(unknown)) << unknown.ToString();
  EXPECT_NE(unknown.ToString().find("gpu"), std::string::npos);
  for (const char* name : {"reference", "cpu", "auto"}) {
    for (const int threads : {-1, 1025}) {
      const absl::Status status = CreateBackend(name, {.threads = threads}).status();
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status.ToString();
      EXPECT_NE(status.ToString().find("threads"), std::string::npos);
      EXPECT_NE(status.ToString().find(std::to_string(threads)), std::string::npos);
    }
  }
}

TEST(BackendFactoryTest, WithoutADeviceAutoIsTheCpu) {
  const absl::StatusOr<std::unique_ptr<Backend>> cuda = CreateBackend("cuda", {.threads = 1});
  if (!cuda.ok()) {
    EXPECT_TRUE(absl::IsUnavailable(cuda.status())) << cuda.status().ToString();
  }
  const absl::StatusOr<std::unique_ptr<Backend>> chosen = CreateBackend("auto", {.threads = 1});
  ASSERT_TRUE(chosen.ok()) << chosen.status().ToString();
  EXPECT_EQ((*chosen)->name(), cuda.ok() ? "cuda" : "cpu");
}

class BackendTest : public ::testing::TestWithParam<BackendCase> {};

TEST_P(BackendTest, SaysWhatItIs) {
  const std::unique_ptr<Backend> backend = Create(GetParam(), 1);
  EXPECT_EQ(backend->name(), GetParam().backend);
  EXPECT_EQ(backend->numerics(), GetParam().numerics);
  EXPECT_FALSE(backend->description().empty());
}

TEST_P(BackendTest, MemoryIsZeroedAlignedAndCopiedBothWays) {
  Harness harness(GetParam());
  for (const int64_t count : {1, 63, 1000}) {
    const DeviceSpan<float> span = harness.Zeros(count);
    EXPECT_EQ(span.size(), static_cast<size_t>(count));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(span.data()) % 64, 0u);
    EXPECT_EQ(harness.Download(span), std::vector<float>(static_cast<size_t>(count)));
    Random random(1);
    const std::vector<float> values = random.Normal(count);
    EXPECT_EQ(harness.Download(harness.Upload(values)), values);
  }
}

TEST_P(BackendTest, AbsurdSizesAreRefusedNotTried) {
  const std::unique_ptr<Backend> backend = Create(GetParam(), 1);
  const absl::Status status = backend->Allocate(size_t{1} << 60).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status.ToString();
}

TEST_P(BackendTest, RefusesCacheTypesByName) {
  const std::unique_ptr<Backend> backend = Create(GetParam(), 1);
  const HeadShape shape = {1, 1, 32};
  for (const DType dtype : CacheTypes(GetParam())) {
    EXPECT_TRUE(backend->CreateKvStorage(shape.KvSpec(dtype, 2)).ok());
  }
  const absl::Status status = backend->CreateKvStorage(shape.KvSpec(DType::kQ4_1, 2)).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status.ToString();
  EXPECT_NE(status.ToString().find("Q4_1"), std::string::npos) << status.ToString();
}

TEST_P(BackendTest, EmptyStepsAreNothing) {
  Harness harness(GetParam());
  Random random(2);
  const Weights weights = RandomWeights(DType::kQ4_1, 16, 32, random);
  const PackedMatrix* packed = harness.Pack({&weights});
  RowBuffer* rows = harness.NewRows(1, {packed});
  const DeviceSpan<float> some = harness.Zeros(32);
  harness->RmsNorm({.input = some, .weight = some, .rows = 0, .output = rows});
  harness->MatMul({.input = rows, .weight = packed, .output = some, .rows = 0});
  harness->Embed({.table = packed, .token_ids = {}, .output = some});
  harness->GatherRows({.input = some, .row_ids = {}, .columns = 32, .output = some});
  const Step step({0}, {}, {}, 1);
  const HeadShape shape = {1, 1, 32};
  KvStorage* kv = harness.NewKv(shape.KvSpec(DType::kBF16, 1));
  WriteUnrotated(harness, kv, 0, step, shape, {});
  harness->PagedAttention(
      {.q = some, .batch = &step.batch(), .kv = kv, .num_heads = 1, .output = rows});
  harness->Synchronize();
  EXPECT_EQ(harness.Download(some), std::vector<float>(32));
}

// The second round may record what the first has run, later ones replay it.
TEST_P(BackendTest, RepeatedStepsReadTheirArraysAsTheyAreThen) {
  constexpr int kRows = 50;
  constexpr int kIds = 100;
  Harness harness(GetParam());
  Random random(3);
  const std::vector<float> values = random.Normal(kRows);
  const DeviceSpan<float> input = harness.Upload(values);
  const DeviceSpan<float> output = harness.Zeros(kIds);
  std::vector<int32_t> ids(kIds);
  for (int round = 0; round < 6; ++round) {
    harness->RunRepeated(1, [&] {
      harness->GatherRows({.input = input, .row_ids = ids, .columns = 1, .output = output});
    });
    std::vector<float> expected;
    for (const int32_t id : ids) expected.push_back(values[static_cast<size_t>(id)]);
    EXPECT_EQ(harness.Download(output), expected) << "round " << round;
    for (int changes = round * round; changes > 0; --changes) {
      ids[static_cast<size_t>(random.Below(kIds))] = random.Below(kRows);
    }
  }
}

VITRINE_INSTANTIATE_BACKENDS(BackendTest);

// The checks of arguments come before any backend.
class BackendDeathTest : public ::testing::Test {
 protected:
  BackendDeathTest() { GTEST_FLAG_SET(death_test_style, "fast"); }

  Harness harness_{BackendCase{.backend = "reference"}};
  Random random_{3};
};

TEST_F(BackendDeathTest, MatMulChecksShapes) {
  const Weights weights = RandomWeights(DType::kF32, 16, 32, random_);
  const PackedMatrix* packed = harness_.Pack({&weights});
  const Weights wider = RandomWeights(DType::kF32, 16, 64, random_);
  RowBuffer* rows = harness_.NewRows(2, {packed});
  const MatMulArgs good = {
      .input = rows, .weight = packed, .output = harness_.Zeros(2 * 16), .rows = 2};
  harness_->MatMul(good);
  MatMulArgs bad = good;
  bad.rows = 3;
  EXPECT_DEATH(harness_->MatMul(bad), "check failed: .*max_rows.*3 vs. 2");
  bad = good;
  bad.weight = harness_.Pack({&wider});
  EXPECT_DEATH(harness_->MatMul(bad), "check failed: .*32 vs. 64");
  bad = good;
  bad.output = harness_.Zeros(31);
  EXPECT_DEATH(harness_->MatMul(bad), "check failed: .*32 vs. 31");
  bad = good;
  bad.bias = harness_.Zeros(15);
  EXPECT_DEATH(harness_->MatMul(bad), "check failed: .*15 vs. 16");
  bad = good;
  bad.input = nullptr;
  EXPECT_DEATH(harness_->MatMul(bad), "check failed");
}

TEST_F(BackendDeathTest, EmbedChecksIds) {
  const Weights table = RandomWeights(DType::kF32, 16, 8, random_);
  const PackedMatrix* packed = harness_.Pack({&table});
  const DeviceSpan<float> output = harness_.Zeros(8);
  for (const int32_t id : {-1, 16}) {
    const std::vector<int32_t> ids = {id};
    EXPECT_DEATH(harness_->Embed({.table = packed, .token_ids = ids, .output = output}),
                 "check failed");
  }
  const std::vector<int32_t> ids = {DrawnToken(2)};
  EXPECT_DEATH(
      harness_->Embed(
          {.table = packed, .token_ids = ids, .drawn = harness_.Integers(2), .output = output}),
      "check failed: .*2 vs. 2");
}

TEST_F(BackendDeathTest, PagedAttentionChecksLayersHeadsAndTables) {
  const HeadShape shape = {2, 2, 8};
  KvStorage* kv = harness_.NewKv(shape.KvSpec(DType::kF32, 4));
  RowBuffer* rows = harness_.NewRows(1, {harness_.Identity(16)});
  const Step step({0, 1}, {0}, {0}, 1);
  const PagedAttentionArgs good = {
      .q = harness_.Zeros(16), .batch = &step.batch(), .kv = kv, .num_heads = 2, .output = rows};
  harness_->PagedAttention(good);
  PagedAttentionArgs bad = good;
  bad.layer = 1;
  EXPECT_DEATH(harness_->PagedAttention(bad), "check failed: .*1 vs. 1");
  bad = good;
  bad.num_heads = 3;
  EXPECT_DEATH(harness_->PagedAttention(bad), "check failed");
  const Step torn({0, 1}, {0}, {0, 0, 0}, 2);
  bad = good;
  bad.batch = &torn.batch();
  EXPECT_DEATH(harness_->PagedAttention(bad), "check failed: .*3 vs. 2");
}

TEST_F(BackendDeathTest, PackMatrixChecksLayouts) {
  const Weights a = RandomWeights(DType::kF32, 16, 32, random_);
  const Weights b = RandomWeights(DType::kF32, 24, 32, random_);
  EXPECT_DEATH(harness_.Pack({&a, &b}, RowLayout::kGateUp), "check failed: .*16 vs. 24");
  EXPECT_DEATH(harness_.Pack({&a, &b, &b}, RowLayout::kHeads, 16), "check failed");
  EXPECT_DEATH(harness_.Pack({&a, &b}, RowLayout::kHeads, 8), "check failed: .*2 vs. 3");
}

}  // namespace
}  // namespace vitrine::testing
