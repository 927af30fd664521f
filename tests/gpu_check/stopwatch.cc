#include "tests/gpu_check/stopwatch.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace vitrine::gpu_check {

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
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2] / repetitions.per_launch;
}

}  // namespace vitrine::gpu_check
