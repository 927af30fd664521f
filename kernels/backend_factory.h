// The only place that knows which backends exist.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace vitrine {

// `name` is "reference", "cpu", "cuda" or "auto" (cuda if a device answers, else cpu).
// INVALID_ARGUMENT: no such name, or options out of range. UNIMPLEMENTED or UNAVAILABLE: the
// backend is not built in, or the machine lacks what it needs.
absl::StatusOr<std::unique_ptr<Backend>> CreateBackend(std::string_view name,
                                                       const BackendOptions& options);

}  // namespace vitrine
