// Speed of single ops of the cpu backend beside what the machine can do in the same minute.
//
//   op_bench --benchmark_filter=mat_mul/Q4_1
//
// Memory-bound cases name the share of the read rate, arithmetic-bound ones that of the integer
// rate. Both limits are measured before and after all cases; a share is of the better one.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/backend_factory.h"
#include "kernels/block_formats.h"

namespace vitrine {
namespace {

template <class T>
T Value(absl::StatusOr<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "op_bench: %s\n", std::string(result.status().message()).c_str());
    std::exit(1);
  }
  return *std::move(result);
}

Backend& TheBackend() {
  static const std::unique_ptr<Backend> backend = Value(CreateBackend("cpu", {}));
  return *backend;
}

Calibration g_limits;

void KeepBetter(const Calibration& limits) {
  g_limits.read_bytes_per_s = std::max(g_limits.read_bytes_per_s, limits.read_bytes_per_s);
  g_limits.int8_ops_per_s = std::max(g_limits.int8_ops_per_s, limits.int8_ops_per_s);
}

// Blocks of any bits are valid weights, as long as their fp16 fields are small numbers.
std::vector<std::byte> RandomRows(DType dtype, int64_t rows, int64_t columns) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(RowBytes(dtype, columns) * static_cast<size_t>(rows));
  for (std::byte& byte : bytes) byte = std::byte{static_cast<uint8_t>(random() & 0x2fu)};
  return bytes;
}

std::unique_ptr<PackedMatrix> RandomMatrix(DType dtype, int64_t rows, int64_t columns) {
  const std::vector<std::byte> bytes = RandomRows(dtype, rows, columns);
  MatrixSource source;
  source.parts.push_back(
      {.name = "random", .dtype = dtype, .data = bytes.data(), .rows = rows, .columns = columns});
  return Value(TheBackend().PackMatrix(source));
}

std::vector<float> RandomFloats(size_t count) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

Buffer Upload(const std::vector<float>& values) {
  Buffer buffer = Value(TheBackend().Allocate(values.size() * sizeof(float)));
  TheBackend().CopyToDevice(std::span<const float>(values), buffer.As<float>());
  return buffer;
}

void Report(benchmark::State& state, double bytes, double ops) {
  const double runs = static_cast<double>(state.iterations());
  state.counters["bytes"] = benchmark::Counter(bytes * runs, benchmark::Counter::kIsRate);
  state.counters["ops"] = benchmark::Counter(ops * runs, benchmark::Counter::kIsRate);
  state.counters["of_read_rate"] =
      benchmark::Counter(bytes * runs / g_limits.read_bytes_per_s, benchmark::Counter::kIsRate);
  state.counters["of_int8_rate"] =
      benchmark::Counter(ops * runs / g_limits.int8_ops_per_s, benchmark::Counter::kIsRate);
}

// As many matrices as are far larger than the caches, read one after the other.
void MatMul(benchmark::State& state, DType dtype, int rows) {
  constexpr int64_t kColumns = 1536;
  constexpr int64_t kOutputs = 1536;
  constexpr double kWorkingSet = 160e6;
  Backend& backend = TheBackend();
  std::vector<std::unique_ptr<PackedMatrix>> matrices;
  double bytes = 0;
  while (bytes < kWorkingSet) {
    matrices.push_back(RandomMatrix(dtype, kOutputs, kColumns));
    bytes += static_cast<double>(matrices.back()->bytes());
  }
  const auto count = static_cast<size_t>(rows);
  const Buffer input = Upload(RandomFloats(count * kColumns));
  const Buffer weight = Upload(std::vector<float>(kColumns, 1.0f));
  const Buffer output = Value(backend.Allocate(count * kOutputs * sizeof(float)));
  const std::unique_ptr<RowBuffer> packed = Value(backend.CreateRowBuffer(
      {.max_rows = rows, .columns = kColumns, .consumers = {matrices[0].get()}}));
  for (auto _ : state) {
    backend.RmsNorm({.input = input.As<float>(),
                     .weight = weight.As<float>(),
                     .epsilon = 1e-5f,
                     .rows = rows,
                     .output = packed.get()});
    for (const auto& matrix : matrices) {
      backend.MatMul({.input = packed.get(),
                      .weight = matrix.get(),
                      .output = output.As<float>(),
                      .rows = rows});
    }
    backend.Synchronize();
  }
  Report(state, bytes, 2.0 * kColumns * kOutputs * rows * static_cast<double>(matrices.size()));
}

// One sequence with `rows` new tokens behind `depth` cached ones.
void Attention(benchmark::State& state, DType dtype, int rows, int depth) {
  constexpr int kHeads = 9;
  constexpr int kKvHeads = 3;
  constexpr int kHeadDim = 64;
  constexpr int kLayers = 30;
  Backend& backend = TheBackend();
  const int blocks = (depth + rows + kKvBlockTokens - 1) / kKvBlockTokens;
  const std::unique_ptr<KvStorage> kv = Value(backend.CreateKvStorage({.num_layers = kLayers,
                                                                       .num_kv_heads = kKvHeads,
                                                                       .head_dim = kHeadDim,
                                                                       .num_blocks = blocks,
                                                                       .dtype = dtype}));
  std::vector<int32_t> table(static_cast<size_t>(blocks));
  for (int b = 0; b < blocks; ++b) table[static_cast<size_t>(b)] = b;
  const std::vector<int32_t> row_begin = {0, rows};
  const std::vector<int32_t> first_position = {depth};
  const PagedBatch batch = {row_begin, first_position, table, blocks};
  const Buffer q = Upload(RandomFloats(static_cast<size_t>(rows) * kHeads * kHeadDim));
  const auto consumer = RandomMatrix(DType::kQ8_0, 16, kHeads * kHeadDim);
  const std::unique_ptr<RowBuffer> output = Value(backend.CreateRowBuffer(
      {.max_rows = rows, .columns = kHeads * kHeadDim, .consumers = {consumer.get()}}));
  for (auto _ : state) {
    for (int layer = 0; layer < kLayers; ++layer) {
      backend.PagedAttention({.q = q.As<float>(),
                              .batch = &batch,
                              .kv = kv.get(),
                              .layer = layer,
                              .num_heads = kHeads,
                              .scale = 0.125f,
                              .output = output.get()});
    }
    backend.Synchronize();
  }
  const double keys = static_cast<double>(rows) * (depth + 0.5 * (rows + 1));
  Report(state, rows == 1 ? static_cast<double>(kv->bytes()) : 0.0,
         4.0 * kLayers * kHeads * kHeadDim * keys);
}

// One row, as a lone sequence draws it.
void Sample(benchmark::State& state, int vocabulary, SampleRow row) {
  Backend& backend = TheBackend();
  std::vector<float> values = RandomFloats(static_cast<size_t>(vocabulary));
  for (float& value : values) value *= 3.0f;
  const Buffer logits = Upload(values);
  const Buffer ids = Value(backend.Allocate(sizeof(int32_t)));
  for (auto _ : state) {
    ++row.position;
    backend.Sample({.logits = logits.As<float>(),
                    .rows = {&row, 1},
                    .vocabulary = vocabulary,
                    .token_ids = ids.As<int32_t>()});
    backend.Synchronize();
  }
}

void RegisterSampling(int vocabulary) {
  const auto measure = [vocabulary](const std::string& name, const SampleRow& row) {
    const std::string full = "sample/" + std::to_string(vocabulary) + "/" + name;
    benchmark::RegisterBenchmark(full.c_str(),
                                 [=](benchmark::State& state) { Sample(state, vocabulary, row); })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
  };
  measure("greedy", {});
  measure("temperature", {.temperature = 0.8f});
  measure("top_k", {.temperature = 0.8f, .top_k = 40});
  measure("top_p", {.temperature = 0.8f, .top_p = 0.95f});
  measure("min_p", {.temperature = 0.8f, .min_p = 0.05f});
}

void RegisterAll() {
  constexpr DType kTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ4_0,  DType::kQ4_1,
                              DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kQ2_K,  DType::kQ3_K,
                              DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL};
  const auto measure = [](const std::string& name, auto body) {
    benchmark::RegisterBenchmark(name.c_str(), body)->UseRealTime()->Unit(benchmark::kMillisecond);
  };
  for (const DType dtype : kTypes) {
    for (const int rows : {1, 8, 16, 128}) {
      measure("mat_mul/" + std::string(TraitsOf(dtype).name) + "/rows:" + std::to_string(rows),
              [=](benchmark::State& state) { MatMul(state, dtype, rows); });
    }
  }
  RegisterSampling(49152);
  RegisterSampling(151936);
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const std::string type(TraitsOf(dtype).name);
    measure("attention/" + type + "/decode_at_4096",
            [=](benchmark::State& state) { Attention(state, dtype, 1, 4096); });
    measure("attention/" + type + "/prefill_512_at_4096",
            [=](benchmark::State& state) { Attention(state, dtype, 512, 4096); });
  }
}

}  // namespace
}  // namespace vitrine

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  vitrine::RegisterAll();
  const vitrine::Calibration before = vitrine::TheBackend().Calibrate();
  vitrine::KeepBetter(before);
  benchmark::RunSpecifiedBenchmarks();
  const vitrine::Calibration after = vitrine::TheBackend().Calibrate();
  std::printf("%s\n", vitrine::TheBackend().description().c_str());
  for (const auto& [when, limits] : {std::pair("before", before), std::pair("after", after)}) {
    std::printf("limits %s: read %.1f GB/s, integer products %.0f GOP/s, handover %.0f ns\n", when,
                limits.read_bytes_per_s / 1e9, limits.int8_ops_per_s / 1e9,
                limits.handover_s * 1e9);
  }
  return 0;
}
