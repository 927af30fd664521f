#pragma once

#include "absl/functional/function_ref.h"
#include "kernels/backend.h"

namespace vitrine::gpu_check {

struct Repetitions {
  int per_launch = 20;  // Calls of the work in one recorded graph.
  int launches = 9;     // Of which the median counts.
};

// Seconds of one call of `work`, which enqueues ops: many calls are recorded together and replayed,
// so that the host's part does not count. The host arrays that the ops read must not change.
double SecondsOf(Backend& backend, const Repetitions& repetitions, absl::FunctionRef<void()> work);

// The same for work that enqueues to the default stream; by the device's clock.
double SecondsOnDefaultStream(const Repetitions& repetitions, absl::FunctionRef<void()> work);

}  // namespace vitrine::gpu_check
