#include "tests/kernels/backends.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "kernels/backend_factory.h"
#include "kernels/block_formats.h"

namespace vitrine::testing {
namespace {

constexpr char kIsaVariable[] = "VITRINE_CPU_ISA";

absl::StatusOr<std::unique_ptr<Backend>> TryCreate(const BackendCase& backend_case, int threads) {
  if (!backend_case.isa.empty()) setenv(kIsaVariable, backend_case.isa.c_str(), 1);
  absl::StatusOr<std::unique_ptr<Backend>> backend =
      CreateBackend(backend_case.backend, {.numerics = backend_case.numerics, .threads = threads});
  unsetenv(kIsaVariable);
  return backend;
}

std::vector<BackendCase> FindBackends() {
  std::vector<BackendCase> cases = {{.backend = "reference"}};
  for (const Numerics numerics : {Numerics::kExact, Numerics::kFast}) {
    for (const char* isa : {"portable", "avx2", "avxvnni", "avx512", "amx"}) {
      const BackendCase one = {.backend = "cpu", .numerics = numerics, .isa = isa};
      const absl::Status status = TryCreate(one, 1).status();
      if (absl::IsUnavailable(status)) {
        std::cerr << "not tested: " << one << ": " << status.message() << "\n";
      } else {
        cases.push_back(one);
      }
    }
    if (CreateBackend("cuda", {.numerics = numerics, .threads = 1}).ok()) {
      cases.push_back({.backend = "cuda", .numerics = numerics});
    }
  }
  return cases;
}

template <class T>
T Value(absl::StatusOr<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().ToString());
  return *std::move(result);
}

// Byte offsets of the fp16 fields of a block.
std::vector<size_t> HalfOffsets(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
      return {0, 2};
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ3_K:
      return {108};
    case DType::kQ4_K:
      return {0, 2};
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ6_K:
      return {208};
    default:
      return {0};  // Q4_0, Q5_0, Q8_0, IQ4_NL, IQ4_XS
  }
}

// The values of the bytes.
void SetValues(Weights& weights) {
  const size_t row_bytes = RowBytes(weights.dtype, weights.columns);
  for (int64_t n = 0; n < weights.rows; ++n) {
    DequantizeRow(weights.dtype, weights.bytes.data() + static_cast<size_t>(n) * row_bytes,
                  weights.columns, weights.values.data() + n * weights.columns);
  }
}

bool ReadsInt8(const BackendCase& backend_case, DType weights) {
  return backend_case.backend == "cpu" && backend_case.is_fast() && !IsFloat(weights);
}

// What the backend's format takes from each activation of a row that meets `weights`.
std::vector<double> FormatErrors(const BackendCase& backend_case, DType weights,
                                 std::span<const double> row) {
  std::vector<double> errors(row.size());
  if (ReadsInt8(backend_case, weights)) {
    for (size_t begin = 0; begin < row.size(); begin += 32) {
      const size_t end = std::min(begin + 32, row.size());
      double largest = 0;
      for (size_t c = begin; c < end; ++c) largest = std::max(largest, std::fabs(row[c]));
      // Half a step of largest / 127, and the roundings of the scale and of the quotient.
      const double step = largest / 127;
      for (size_t c = begin; c < end; ++c) errors[c] = step * (0.5 + 127 * 4 * kF32Rounding);
    }
  }
  if (backend_case.backend == "cuda" && backend_case.is_fast()) {
    for (size_t c = 0; c < row.size(); ++c) errors[c] = kBf16Rounding * std::fabs(row[c]);
  }
  return errors;
}

}  // namespace

std::string BackendCase::Name() const {
  if (backend == "reference") return backend;
  return backend + (is_fast() ? "_fast" : "_exact") + (isa.empty() ? "" : "_" + isa);
}

const std::vector<BackendCase>& BackendCases() {
  static const std::vector<BackendCase>* const cases = new std::vector<BackendCase>(FindBackends());
  return *cases;
}

std::vector<BackendCase> CpuCases(Numerics numerics) {
  std::vector<BackendCase> cases = BackendCases();
  std::erase_if(cases, [&](const BackendCase& one) {
    return one.backend != "cpu" || one.numerics != numerics;
  });
  return cases;
}

std::unique_ptr<Backend> Create(const BackendCase& backend_case, int threads) {
  return Value(TryCreate(backend_case, threads));
}

std::vector<float> Random::Normal(int64_t count, float deviation) {
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(engine_);
  return values;
}

std::vector<std::byte> Random::Bytes(size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = std::byte{static_cast<uint8_t>(engine_() & 0xffu)};
  return bytes;
}

std::vector<int32_t> Random::Permutation(int count) {
  std::vector<int32_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  std::shuffle(numbers.begin(), numbers.end(), engine_);
  return numbers;
}

MatrixPart Weights::Part() const {
  return {.name = "test", .dtype = dtype, .data = bytes.data(), .rows = rows, .columns = columns};
}

std::vector<DType> AllTypes() {
  std::vector<DType> types;
  for (const DType dtype : kRequiredTypes) types.push_back(dtype);
  for (const DType dtype : kOptionalTypes) types.push_back(dtype);
  return types;
}

Weights RandomWeights(DType dtype, int64_t rows, int64_t columns, Random& random) {
  Weights weights{.dtype = dtype, .rows = rows, .columns = columns};
  const size_t row_bytes = RowBytes(dtype, columns);
  weights.values.resize(static_cast<size_t>(rows * columns));
  if (CanQuantize(dtype)) {
    weights.bytes.resize(row_bytes * static_cast<size_t>(rows));
    const std::vector<float> values = random.Normal(rows * columns);
    for (int64_t n = 0; n < rows; ++n) {
      QuantizeRow(dtype, values.data() + n * columns, columns,
                  weights.bytes.data() + static_cast<size_t>(n) * row_bytes);
    }
  } else {
    weights.bytes = random.Bytes(row_bytes * static_cast<size_t>(rows));
    const auto block_bytes = static_cast<size_t>(TraitsOf(dtype).block_bytes);
    for (size_t block = 0; block < weights.bytes.size(); block += block_bytes) {
      float scale_value = 0;
      for (const size_t offset : HalfOffsets(dtype)) {
        // Values of Q5_1 are spread around zero: its minimum is -15.5 scales.
        const bool is_min = dtype == DType::kQ5_1 && offset == 2;
        scale_value = is_min ? -15.5f * scale_value : 0.01f * random.Normal(1)[0];
        const auto scale = F16FromFloat(scale_value);
        weights.bytes[block + offset] = std::byte{static_cast<uint8_t>(scale & 0xff)};
        weights.bytes[block + offset + 1] = std::byte{static_cast<uint8_t>(scale >> 8)};
      }
    }
  }
  SetValues(weights);
  return weights;
}

Weights EvenWeights(DType dtype, int64_t rows, int64_t columns, uint8_t byte, Random& random) {
  Weights weights = RandomWeights(dtype, rows, columns, random);
  const auto block_bytes = static_cast<size_t>(TraitsOf(dtype).block_bytes);
  const std::vector<size_t> halves = HalfOffsets(dtype);
  for (size_t i = 0; i < weights.bytes.size(); ++i) {
    const size_t offset = i % block_bytes;
    const bool is_half = std::any_of(halves.begin(), halves.end(), [offset](size_t half) {
      return offset == half || offset == half + 1;
    });
    if (!is_half) weights.bytes[i] = std::byte{byte};
  }
  SetValues(weights);
  return weights;
}

Weights WeightsOf(int64_t rows, int64_t columns, const std::vector<float>& values) {
  const auto* begin = reinterpret_cast<const std::byte*>(values.data());
  return {.dtype = DType::kF32,
          .rows = rows,
          .columns = columns,
          .bytes = {begin, begin + values.size() * sizeof(float)},
          .values = values};
}

void ExpectClose(std::span<const float> actual, std::span<const Bounded> expected) {
  ASSERT_EQ(actual.size(), expected.size());
  int failures = 0;
  double errors = 0;
  double magnitudes = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    errors += expected[i].error;
    magnitudes += std::fabs(expected[i].value);
    const double difference = std::fabs(actual[i] - expected[i].value);
    if (difference <= expected[i].error || ++failures > 5) continue;
    ADD_FAILURE() << "element " << i << " is " << actual[i] << ", not " << expected[i].value
                  << " within " << expected[i].error;
  }
  EXPECT_EQ(failures, 0) << "of " << actual.size();
  EXPECT_LE(errors, 0.6 * magnitudes) << "such bounds show nothing";
}

DeviceSpan<float> Harness::Upload(std::span<const float> values) {
  const DeviceSpan<float> span = Zeros(static_cast<int64_t>(values.size()));
  backend_->CopyToDevice(values, span);
  return span;
}

DeviceSpan<float> Harness::Zeros(int64_t count) {
  buffers_.push_back(Value(backend_->Allocate(static_cast<size_t>(count) * sizeof(float))));
  return buffers_.back().As<float>();
}

DeviceSpan<int32_t> Harness::Integers(int64_t count) {
  buffers_.push_back(Value(backend_->Allocate(static_cast<size_t>(count) * sizeof(int32_t))));
  return buffers_.back().As<int32_t>();
}

DeviceSpan<uint32_t> Harness::Keys(int64_t count) {
  buffers_.push_back(Value(backend_->Allocate(static_cast<size_t>(count) * sizeof(uint32_t))));
  return buffers_.back().As<uint32_t>();
}

std::vector<float> Harness::Download(DeviceSpan<const float> values) {
  std::vector<float> host(values.size());
  backend_->CopyToHost(values, std::span<float>(host));
  return host;
}

std::vector<int32_t> Harness::Download(DeviceSpan<const int32_t> values) {
  std::vector<int32_t> host(values.size());
  backend_->CopyToHost(values, std::span<int32_t>(host));
  return host;
}

std::vector<uint32_t> Harness::Download(DeviceSpan<const uint32_t> values) {
  std::vector<uint32_t> host(values.size());
  backend_->CopyToHost(values, std::span<uint32_t>(host));
  return host;
}

const PackedMatrix* Harness::Pack(const std::vector<const Weights*>& parts, RowLayout layout,
                                  int head_dim) {
  MatrixSource source{.parts = {}, .layout = layout, .head_dim = head_dim};
  bool may_refuse = false;
  for (const Weights* part : parts) {
    source.parts.push_back(part->Part());
    may_refuse |= std::ranges::find(kOptionalTypes, part->dtype) != std::end(kOptionalTypes);
  }
  absl::StatusOr<std::unique_ptr<PackedMatrix>> matrix = backend_->PackMatrix(source);
  if (may_refuse && absl::IsUnimplemented(matrix.status())) {
    const std::string name(TraitsOf(parts[0]->dtype).name);
    EXPECT_NE(std::string(matrix.status().message()).find(name), std::string::npos)
        << matrix.status().ToString();
    return nullptr;
  }
  matrices_.push_back(Value(std::move(matrix)));
  return matrices_.back().get();
}

const PackedMatrix* Harness::Identity(int64_t columns) {
  std::vector<float> values(static_cast<size_t>(columns * columns));
  for (int64_t c = 0; c < columns; ++c) values[static_cast<size_t>(c * (columns + 1))] = 1.0f;
  const Weights weights = WeightsOf(columns, columns, values);
  return Pack({&weights});
}

RowBuffer* Harness::NewRows(int max_rows, const std::vector<const PackedMatrix*>& consumers) {
  const int columns = static_cast<int>(consumers.at(0)->columns());
  rows_.push_back(Value(backend_->CreateRowBuffer(
      {.max_rows = max_rows, .columns = columns, .consumers = consumers})));
  return rows_.back().get();
}

FedRows Harness::Feed(std::span<const float> input, int64_t columns,
                      const std::vector<const PackedMatrix*>& consumers) {
  FedRows fed;
  fed.columns = columns;
  fed.count = static_cast<int>(static_cast<int64_t>(input.size()) / columns);
  fed.rows = NewRows(fed.count, consumers);
  const std::vector<float> ones(static_cast<size_t>(columns), 1.0f);
  backend_->RmsNorm(
      {.input = Upload(input), .weight = Upload(ones), .rows = fed.count, .output = fed.rows});
  for (int r = 0; r < fed.count; ++r) {
    const std::span<const float> row =
        input.subspan(static_cast<size_t>(r * columns), static_cast<size_t>(columns));
    double squares = 0;
    for (const float x : row) squares += double{x} * x;
    for (const float x : row) {
      const double y = x / std::sqrt(squares / static_cast<double>(columns));
      fed.values.push_back(y);
      // The sum of squares, halved by the root; then mean, root, quotient and two products.
      fed.errors.push_back(std::fabs(y) * (static_cast<double>(columns) / 2 + 6) * kF32Rounding);
    }
  }
  return fed;
}

std::vector<float> Harness::Read(const RowBuffer* rows, int count) {
  const int64_t columns = rows->columns();
  const DeviceSpan<float> output = Zeros(count * columns);
  backend_->MatMul({.input = rows, .weight = Identity(columns), .output = output, .rows = count});
  return Download(output);
}

FedRows Harness::Reread(RowBuffer* rows, int count) {
  const std::vector<float> values = Read(rows, count);
  return {.rows = rows,
          .count = count,
          .columns = rows->columns(),
          .values = {values.begin(), values.end()},
          .errors = std::vector<double>(values.size())};
}

KvStorage* Harness::NewKv(const KvStorageSpec& spec) {
  kvs_.push_back(Value(backend_->CreateKvStorage(spec)));
  return kvs_.back().get();
}

std::vector<Bounded> MatMulOracle(const BackendCase& backend_case, const FedRows& input,
                                  const Weights& weights, std::span<const float> bias) {
  std::vector<Bounded> results;
  const auto columns = static_cast<size_t>(weights.columns);
  const double sum_error = static_cast<double>(columns + 4) * kF32Rounding;
  const bool is_int8 = ReadsInt8(backend_case, weights.dtype);
  for (size_t r = 0; r < static_cast<size_t>(input.count); ++r) {
    const std::span<const double> row = std::span(input.values).subspan(r * columns, columns);
    const std::vector<double> format = FormatErrors(backend_case, weights.dtype, row);
    for (size_t n = 0; n < static_cast<size_t>(weights.rows); ++n) {
      Bounded y;
      double magnitude = 0;
      for (size_t c = 0; c < columns; ++c) {
        const double w = weights.values[n * columns + c];
        y.value += row[c] * w;
        y.error += (input.errors[r * columns + c] + format[c]) * std::fabs(w);
        magnitude += std::fabs(row[c] * w);
      }
      if (is_int8) {
        // Scale and minimum are summed apart; each is at most twice the largest weight.
        magnitude = 0;
        for (size_t begin = 0; begin < columns; begin += 32) {
          double largest = 0;
          double sum = 0;
          for (size_t c = begin; c < std::min(begin + 32, columns); ++c) {
            largest = std::max(largest, std::fabs(double{weights.values[n * columns + c]}));
            sum += std::fabs(row[c]);
          }
          magnitude += 3 * largest * sum;
        }
      }
      const double b = bias.empty() ? 0.0 : double{bias[n]};
      y.value += b;
      y.error += sum_error * magnitude + 2 * kF32Rounding * (std::fabs(b) + std::fabs(y.value));
      results.push_back(y);
    }
  }
  return results;
}

}  // namespace vitrine::testing
