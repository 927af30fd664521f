// Everything a GPU machine can tell about the cuda backend, in one run of a few minutes.
//
// Correctness first: the wrapped instructions, every op test, whole models. Then speed: the
// device's own limits, each kernel beside them, and steps of a model of Llama 3 8B's shape. Prints
// as it goes and keeps one JSON file: {"device", "tests", "failures", "limits", "kernels", "steps",
// "not_measured", "seconds", "running", "device_fault"}, where a list without entries is missing.
// Exit code 0: all tests passed; 1: some failed, or the device did; 2: nothing could be run. Where
// it ends otherwise, "running" in the file says at what.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/backend_factory.h"
#include "tests/gpu_check/device_limits.h"
#include "tests/gpu_check/kernel_speed.h"
#include "tests/gpu_check/ptx_wrappers.h"
#include "tests/gpu_check/report.h"
#include "tests/gpu_check/required.h"
#include "tests/gpu_check/step_speed.h"

namespace vitrine::gpu_check {
namespace {

constexpr char kUsage[] =
    "usage: gpu_check [--json=FILE] [--check_only | --speed_only] [GoogleTest's flags]\n"
    "       gpu_check --write_wrappers=FILE   what the wrapped instructions give here\n"
    "The environment variable VITRINE_TEST_DATA names the folder of stored data, "
    "VITRINE_TEST_MODEL "
    "a model file.\n";

#ifdef GPU_CHECK_EMULATED
constexpr bool kIsEmulated = true;
#else
constexpr bool kIsEmulated = false;
#endif

struct Flags {
  std::string json;
  std::string wrappers;
  bool checks = true;
  bool speed = true;
};

// What GoogleTest left of the command line.
bool Parse(int argc, char** argv, Flags& flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const auto value_of = [&](std::string_view name, std::string& value) {
      if (!arg.starts_with(name)) return false;
      value = arg.substr(name.size());
      return true;
    };
    if (arg == "--check_only") {
      flags.speed = false;
    } else if (arg == "--speed_only") {
      flags.checks = false;
    } else if (!value_of("--json=", flags.json) && !value_of("--write_wrappers=", flags.wrappers)) {
      return false;
    }
  }
  return flags.checks || flags.speed;
}

nlohmann::json DeviceFacts(const Backend& backend) {
  cudaDeviceProp device = {};
  int driver = 0, runtime = 0;
  if (cudaGetDeviceProperties(&device, 0) != cudaSuccess) return nullptr;
#ifndef GPU_CHECK_EMULATED
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
#endif
  return {{"description", backend.description()},
          {"name", device.name},
          {"compute_capability", device.major * 10 + device.minor},
          {"multiprocessors", device.multiProcessorCount},
          {"memory_bytes", device.totalGlobalMem},
          {"free_bytes", backend.FreeBytes().value_or(0)},
          {"l2_bytes", device.l2CacheSize},
          {"shared_bytes_per_block", device.sharedMemPerBlockOptin},
          {"registers_per_block", device.regsPerBlock},
          {"driver", driver},
          {"runtime", runtime},
          {"emulated", kIsEmulated}};
}

class Clock {
 public:
  // Seconds since the last lap.
  double Lap() {
    const auto before = std::exchange(start_, std::chrono::steady_clock::now());
    return std::chrono::duration<double>(start_ - before).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void MeasureSpeed(Report& report, Clock& clock, nlohmann::json& seconds) {
  const SpeedPlan plan = kIsEmulated ? TinyPlan() : SpeedPlan();
  report.SetRunning("limits");
  const DeviceLimits limits =
      kIsEmulated ? MeasureLimits(1 << 12, 2) : MeasureLimits(size_t{4} << 30, 4096);
  report.Set("limits", {{"copy_gb_per_s", limits.copy_bytes_per_s / 1e9},
                        {"read_gb_per_s", limits.read_bytes_per_s / 1e9},
                        {"mma_tflop_per_s", limits.mma_flops_per_s / 1e12},
                        {"launch_us", limits.launch_s * 1e6}});
  seconds["limits"] = clock.Lap();
  report.SetRunning("kernels");
  MeasureKernels(plan, limits, report);
  seconds["kernels"] = clock.Lap();
  report.SetRunning("steps");
  const std::unique_ptr<Backend> backend = Required(CreateBackend("cuda", {}));
  MeasureSteps(*backend, plan, limits, report);
  seconds["steps"] = clock.Lap();
}

int Main(int argc, char** argv) {
  // By default, the tests of this backend alone.
  GTEST_FLAG_SET(filter, "*cuda*:Wrappers*:RandomWeights*:BlasLt*:*ModelsTest*:*CudaModelTest*");
  ::testing::InitGoogleTest(&argc, argv);
  Flags flags;
  if (!Parse(argc, argv, flags)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  Report report(flags.json);
  // Made anew for each part, which holds the device alone.
  if (const auto backend = CreateBackend("cuda", {}); backend.ok()) {
    report.Set("device", DeviceFacts(**backend));
  } else {
    report.Set("device", {{"error", std::string(backend.status().message())}});
    report.SetRunning("");
    std::fprintf(stderr, "gpu_check: %s\n", backend.status().ToString().c_str());
    return 2;
  }
  if (!flags.wrappers.empty()) {
    std::ofstream file(flags.wrappers);
    file << ToText(RunWrappers());
    file.close();
    return file ? 0 : 2;
  }
  bool passed = true;
  Clock clock;
  nlohmann::json seconds;
  if (flags.checks) {
    // GoogleTest owns it.
    ::testing::UnitTest::GetInstance()->listeners().Append(new TestListener(report));
    passed = RUN_ALL_TESTS() == 0;
    seconds["checks"] = clock.Lap();
  }
  if (flags.speed && passed) {
    MeasureSpeed(report, clock, seconds);
  } else if (flags.speed) {
    // Figures of kernels that compute something else would mean little.
    report.Append("not_measured",
                  {{"reason", "a test failed; --speed_only measures all the same"}});
  }
  report.Set("seconds", seconds);
  report.SetRunning("");
  return passed ? 0 : 1;
}

}  // namespace
}  // namespace vitrine::gpu_check

int main(int argc, char** argv) { return vitrine::gpu_check::Main(argc, argv); }
