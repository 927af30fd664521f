#include "tests/gpu_check/blas_lt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/dtype.h"
#include "tests/cuda_emulator/device_array.h"
#include "tests/gpu_check/random_weights.h"
#include "tests/gpu_check/required.h"

namespace vitrine::gpu_check {
namespace {

TEST(BlasLtTest, MultipliesWithTheTransposedWeights) {
  const auto library = BlasLt::Open();
  if (!library.ok()) GTEST_SKIP() << library.status().message();
  constexpr size_t kRows = 3, kOutputs = 24, kColumns = 64, kStride = 96;
  const std::vector<uint16_t> inputs = RandomWeights(kRows * kStride, 1.0f);
  const std::vector<uint16_t> weights = RandomWeights(kOutputs * kColumns, 0.5f);
  const gpu::DeviceArray<uint16_t> device_inputs(inputs), device_weights(weights);
  const gpu::DeviceArray<float> device_output(kRows * kOutputs);
  const auto product = Required((*library)->Prepare(kRows, kOutputs, kColumns, kStride));
  const absl::Status status =
      product->Run(device_inputs.data(), device_weights.data(), device_output.data(), nullptr);
  ASSERT_TRUE(status.ok()) << status;
  const std::vector<float> output = device_output.ToHost();
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t o = 0; o < kOutputs; ++o) {
      double sum = 0, magnitude = 0;
      for (size_t c = 0; c < kColumns; ++c) {
        const double term = double{FloatFromBf16(inputs[r * kStride + c])} *
                            FloatFromBf16(weights[o * kColumns + c]);
        sum += term;
        magnitude += std::abs(term);
      }
      // Products of bf16 are exact in f32; the order of the sum is the library's.
      EXPECT_NEAR(output[r * kOutputs + o], sum, kColumns * 0x1p-24 * magnitude) << r << ", " << o;
    }
  }
}

}  // namespace
}  // namespace vitrine::gpu_check
