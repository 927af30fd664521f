#pragma once

#include "kernels/calibration.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/thread_pool.h"

namespace vitrine::cpu {

// The best of a few repetitions; takes about a second and 512 MiB. Nothing else may run in `pool`.
Calibration Calibrate(ThreadPool& pool, const KernelTable& kernels);

}  // namespace vitrine::cpu
