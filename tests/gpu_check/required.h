#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace vitrine::gpu_check {

// The value; ends the process with the reason where there is none.
template <class T>
T Required(absl::StatusOr<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "gpu_check: %s\n", result.status().ToString().c_str());
    std::exit(2);
  }
  return *std::move(result);
}

}  // namespace vitrine::gpu_check
