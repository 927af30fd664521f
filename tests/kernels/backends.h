// What the op tests share: the list of backends, random tensors, and comparison under derived
// bounds.
//
// Row buffers are opaque. The tests fill them through RmsNorm and read them through a matmul with
// the f32 identity.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace vitrine::testing {

inline constexpr double kF32Rounding = 0x1p-24;  // Relative error of one f32 operation.
inline constexpr double kBf16Rounding = 0x1p-8;  // Of one rounding to bf16, which has 8 bits.

struct BackendCase {
  std::string backend{};
  Numerics numerics = Numerics::kExact;
  std::string isa{};  // Value of VITRINE_CPU_ISA when the backend is created; cpu only.

  std::string Name() const;
  bool is_fast() const { return numerics == Numerics::kFast; }
  friend std::ostream& operator<<(std::ostream& stream, const BackendCase& one) {
    return stream << one.Name();
  }
};

// Everything this build and this machine can run: backend x numerics x instruction set.
const std::vector<BackendCase>& BackendCases();

// The cases of the cpu backend with `numerics`, one for each instruction set.
std::vector<BackendCase> CpuCases(Numerics numerics);

std::unique_ptr<Backend> Create(const BackendCase& backend_case, int threads);

// A reproducible source of normal values.
class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  std::vector<float> Normal(int64_t count, float deviation = 1.0f);
  int Below(int limit) { return static_cast<int>(engine_() % static_cast<uint32_t>(limit)); }
  std::vector<std::byte> Bytes(size_t count);
  std::vector<int32_t> Permutation(int count);

 private:
  std::mt19937 engine_;
};

// A matrix as a file has it, and what that means.
struct Weights {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<std::byte> bytes{};
  std::vector<float> values{};

  MatrixPart Part() const;
};
Weights RandomWeights(DType dtype, int64_t rows, int64_t columns, Random& random);
// Quantised weights whose blocks hold nothing but `byte` and random scales in fp16.
Weights EvenWeights(DType dtype, int64_t rows, int64_t columns, uint8_t byte, Random& random);
Weights WeightsOf(int64_t rows, int64_t columns, const std::vector<float>& values);  // F32

// The types that every backend must offer, and those that it may refuse.
inline constexpr DType kRequiredTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16,
                                           DType::kQ8_0, DType::kQ4_0, DType::kQ4_1};
inline constexpr DType kOptionalTypes[] = {DType::kQ5_0, DType::kQ5_1,   DType::kQ2_K,
                                           DType::kQ3_K, DType::kQ4_K,   DType::kQ5_K,
                                           DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS};

std::vector<DType> AllTypes();

// An exact value and how far an honest implementation may be from it.
struct Bounded {
  double value = 0;
  double error = 0;
};

// Also fails where the bounds are so wide that they would hide a wrong result.
void ExpectClose(std::span<const float> actual, std::span<const Bounded> expected);

// Rows as an op reads them: their values before the backend's own format, known up to `errors`.
struct FedRows {
  RowBuffer* rows = nullptr;
  int count = 0;
  int64_t columns = 0;
  std::vector<double> values;
  std::vector<double> errors;
};

// A backend with the buffers of one test.
class Harness {
 public:
  explicit Harness(const BackendCase& backend_case, int threads = 2)
      : case_(backend_case), backend_(Create(backend_case, threads)) {}

  Backend& backend() { return *backend_; }
  Backend* operator->() { return backend_.get(); }

  DeviceSpan<float> Upload(std::span<const float> values);
  DeviceSpan<float> Zeros(int64_t count);
  DeviceSpan<int32_t> Integers(int64_t count);
  DeviceSpan<uint32_t> Keys(int64_t count);
  std::vector<float> Download(DeviceSpan<const float> values);
  std::vector<int32_t> Download(DeviceSpan<const int32_t> values);
  std::vector<uint32_t> Download(DeviceSpan<const uint32_t> values);
  // `values`, or an empty span where there are none.
  DeviceSpan<const float> UploadOptional(std::span<const float> values) {
    return values.empty() ? DeviceSpan<const float>() : Upload(values);
  }

  // Null where the backend refuses the type, which then must be an optional one.
  const PackedMatrix* Pack(const std::vector<const Weights*>& parts,
                           RowLayout layout = RowLayout::kStacked, int head_dim = 0);
  const PackedMatrix* Identity(int64_t columns);

  RowBuffer* NewRows(int max_rows, const std::vector<const PackedMatrix*>& consumers);
  FedRows Feed(std::span<const float> input, int64_t columns,
               const std::vector<const PackedMatrix*>& consumers);
  // `rows` must have an identity among its consumers.
  std::vector<float> Read(const RowBuffer* rows, int count);
  // The same as the input of a further op.
  FedRows Reread(RowBuffer* rows, int count);
  KvStorage* NewKv(const KvStorageSpec& spec);

 private:
  BackendCase case_;
  std::unique_ptr<Backend> backend_;
  std::vector<Buffer> buffers_;
  std::vector<std::unique_ptr<PackedMatrix>> matrices_;
  std::vector<std::unique_ptr<RowBuffer>> rows_;
  std::vector<std::unique_ptr<KvStorage>> kvs_;
};

// weight * input + bias with the error of f32 sums, of the input, and of the format that the case
// gives activations. `bias` may be empty. [rows, weight rows]
std::vector<Bounded> MatMulOracle(const BackendCase& backend_case, const FedRows& input,
                                  const Weights& weights, std::span<const float> bias);

// Instantiates a TEST_P suite over all backends.
#define VITRINE_INSTANTIATE_BACKENDS(suite)         \
  INSTANTIATE_TEST_SUITE_P(                         \
      , suite, ::testing::ValuesIn(BackendCases()), \
      [](const ::testing::TestParamInfo<BackendCase>& one) { return one.param.Name(); })

}  // namespace vitrine::testing
