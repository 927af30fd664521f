// Speed of each kernel by itself, beside what the device can do.
#pragma once

#include <cstddef>
#include <vector>

#include "tests/gpu_check/device_limits.h"
#include "tests/gpu_check/report.h"
#include "tests/gpu_check/stopwatch.h"
#include "tests/gpu_check/synthetic_model.h"

namespace vitrine::gpu_check {

struct SpeedPlan {
  ModelShape shape = kEightBillion;
  Repetitions repetitions = {};
  size_t working_set_bytes = size_t{256} << 20;  // Weights that are read in turn: past the caches.
  std::vector<int> product_rows = {1, 8, 16, 64, 512, 2048};
  std::vector<int> batches = {1, 8, 64};
  std::vector<int> contexts = {1024, 8192};
  std::vector<int> prompts = {512, 2048};
};
// For the emulator, where only that it runs means something.
SpeedPlan TinyPlan();

// Appends to section "kernels" of the report: {"kernel", "us", "gb_per_s", "of_read",
// "tflop_per_s", "of_mma", and what the case is}. Beside our products of bf16 weights stand those
// of cuBLASLt; where it cannot be opened, section "not_measured" has the reason.
void MeasureKernels(const SpeedPlan& plan, const DeviceLimits& limits, Report& report);

}  // namespace vitrine::gpu_check
