#include "tests/gpu_check/stopwatch.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "tests/cuda_emulator/device_array.h"

namespace vitrine::gpu_check {
namespace {

double Median(std::vector<double>& values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

double SecondsOf(Backend& backend, const Repetitions& repetitions, absl::FunctionRef<void()> work) {
  static uint64_t next_shape = uint64_t{1} << 48;  // Above those of decode steps.
  const uint64_t shape = next_shape++;
  std::vector<double> seconds;
  // The first call only runs, the second one records.
  for (int launch = -2; launch < repetitions.launches; ++launch) {
    backend.Synchronize();
    const auto start = std::chrono::steady_clock::now();
    backend.RunRepeated(shape, [&] {
      for (int i = 0; i < repetitions.per_launch; ++i) work();
    });
    backend.Synchronize();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (launch >= 0) seconds.push_back(elapsed.count());
  }
  return Median(seconds) / repetitions.per_launch;
}

double SecondsOnDefaultStream(const Repetitions& repetitions, absl::FunctionRef<void()> work) {
  cudaEvent_t begin = nullptr, end = nullptr;
  gpu::CheckCuda(cudaEventCreate(&begin));
  gpu::CheckCuda(cudaEventCreate(&end));
  std::vector<double> seconds;
  for (int launch = -1; launch < repetitions.launches; ++launch) {
    gpu::CheckCuda(cudaEventRecord(begin, nullptr));
    for (int i = 0; i < repetitions.per_launch; ++i) work();
    gpu::CheckCuda(cudaEventRecord(end, nullptr));
    gpu::CheckCuda(cudaEventSynchronize(end));
    float ms = 0;
    gpu::CheckCuda(cudaEventElapsedTime(&ms, begin, end));
    if (launch >= 0) seconds.push_back(ms / 1e3);
  }
  gpu::CheckCuda(cudaEventDestroy(begin));
  gpu::CheckCuda(cudaEventDestroy(end));
  return Median(seconds) / repetitions.per_launch;
}

}  // namespace vitrine::gpu_check
