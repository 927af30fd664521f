// What the device can do right now, measured: the limits that speeds are compared with.
#pragma once

#include <cstddef>

namespace vitrine::gpu_check {

struct DeviceLimits {
  double copy_bytes_per_s = 0;  // Bytes read and written by a copy within device memory.
  double read_bytes_per_s = 0;  // By a kernel that adds up what it reads.
  double mma_flops_per_s = 0;   // bf16 mma.sync from registers; multiply and add count two.
  double launch_s = 0;          // From one empty kernel of a stream to the next.
};

// `bytes`: memory to read and to copy; far more than the caches hold.
DeviceLimits MeasureLimits(size_t bytes, int mma_steps);

}  // namespace vitrine::gpu_check
