// No op of the cpu backend allocates once a step of the same shape has run.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "tests/kernels/backends.h"

namespace {
std::atomic<int64_t> g_allocations{0};
}  // namespace

// Not inlined: the compiler would take the pair of new and free for a mistake.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++g_allocations;
  void* memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace vitrine::testing {
namespace {

// A layer of a small model: 4 query heads, 2 key/value heads of 16 dimensions.
struct Layer {
  static constexpr int kColumns = 64;
  static constexpr int kHeads = 4;

  explicit Layer(Harness& test_harness) : harness(test_harness) {
    Random random(1);
    q_weights = RandomWeights(DType::kQ8_0, kColumns, kColumns, random);
    k_weights = RandomWeights(DType::kQ8_0, kColumns / 2, kColumns, random);
    up_weights = RandomWeights(DType::kQ8_0, 2 * kColumns, kColumns, random);
    qkv = harness.Pack({&q_weights, &k_weights, &k_weights}, RowLayout::kHeads, 16);
    out = harness.Pack({&q_weights});
    gate_up = harness.Pack({&up_weights, &up_weights}, RowLayout::kGateUp);
    down_weights = RandomWeights(DType::kQ8_0, kColumns, 2 * kColumns, random);
    down = harness.Pack({&down_weights});
    normalized = harness.NewRows(64, {qkv, gate_up, out});
    attended = harness.NewRows(64, {out});
    hidden = harness.NewRows(64, {down});
    kv = harness.NewKv({.num_layers = 1, .num_kv_heads = 2, .head_dim = 16, .num_blocks = 64});
    residual = harness.Zeros(64 * kColumns);
    queries = harness.Zeros(64 * kColumns);
    ones = harness.Upload(std::vector<float>(kColumns, 1.0f));
    table = harness.Upload(std::vector<float>(1024 * 8, 0.5f));
  }

  void Run(const PagedBatch& batch) {
    Backend& backend = *harness.operator->();
    const int rows = batch.rows();
    backend.RmsNorm(
        {.input = residual, .weight = ones, .epsilon = 1e-5f, .rows = rows, .output = normalized});
    backend.MatMulRopeWriteKv({.input = normalized,
                               .weight = qkv,
                               .target = {.cosines = table,
                                          .sines = table,
                                          .rotary_dim = 16,
                                          .batch = &batch,
                                          .num_heads = kHeads,
                                          .kv = kv,
                                          .q = queries}});
    backend.PagedAttention({.q = queries,
                            .batch = &batch,
                            .kv = kv,
                            .num_heads = kHeads,
                            .scale = 0.25f,
                            .output = attended});
    backend.MatMul({.input = attended,
                    .weight = out,
                    .add_to_output = true,
                    .output = residual,
                    .rows = rows});
    backend.RmsNorm(
        {.input = residual, .weight = ones, .epsilon = 1e-5f, .rows = rows, .output = normalized});
    backend.ActivatedMatMul(
        {.input = normalized, .weight = gate_up, .output = hidden, .rows = rows});
    backend.MatMul(
        {.input = hidden, .weight = down, .add_to_output = true, .output = residual, .rows = rows});
    backend.Synchronize();
  }

  Harness& harness;
  Weights q_weights, k_weights, up_weights, down_weights;
  const PackedMatrix *qkv, *out, *gate_up, *down;
  RowBuffer *normalized, *attended, *hidden;
  KvStorage* kv;
  DeviceSpan<float> residual, queries, ones, table;
};

class CpuAllocationTest : public ::testing::TestWithParam<BackendCase> {};

TEST_P(CpuAllocationTest, StepsAllocateNothing) {
  Harness harness(GetParam());
  Layer layer(harness);
  std::vector<int32_t> blocks(2 * 32);
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<int32_t>(i);
  // A prompt of 40 rows, and a row behind 400 keys: both kinds of attention units.
  const std::vector<int32_t> mixed_rows = {0, 40, 41};
  const std::vector<int32_t> mixed_positions = {0, 400};
  const std::vector<int32_t> decode_rows = {0, 1, 2};
  const std::vector<int32_t> decode_positions = {40, 401};
  const PagedBatch mixed = {mixed_rows, mixed_positions, blocks, 32};
  const PagedBatch decode = {decode_rows, decode_positions, blocks, 32};
  layer.Run(mixed);
  layer.Run(decode);
  const int64_t before = g_allocations.load();
  layer.Run(mixed);
  layer.Run(decode);
  EXPECT_EQ(g_allocations.load(), before);
}

std::vector<BackendCase> AllCpuCases() {
  std::vector<BackendCase> cases = CpuCases(Numerics::kFast);
  for (const BackendCase& one : CpuCases(Numerics::kExact)) cases.push_back(one);
  return cases;
}

INSTANTIATE_TEST_SUITE_P(, CpuAllocationTest, ::testing::ValuesIn(AllCpuCases()),
                         [](const ::testing::TestParamInfo<BackendCase>& instance) {
                           return instance.param.Name();
                         });

}  // namespace
}  // namespace vitrine::testing
