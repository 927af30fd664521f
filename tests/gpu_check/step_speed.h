// Step times of a model of Llama 3 8B's shape.
#pragma once

#include "kernels/backend.h"
#include "tests/gpu_check/kernel_speed.h"

namespace vitrine::gpu_check {

// Appends to section "steps": decode steps of every batch size and context of the plan with graphs,
// without, and with each enqueued ahead of the last one's tokens, and prompts. What does not fit
// into the device's memory, contexts or the weights themselves, is named in section "not_measured".
void MeasureSteps(Backend& backend, const SpeedPlan& plan, const DeviceLimits& limits,
                  Report& report);

}  // namespace vitrine::gpu_check
