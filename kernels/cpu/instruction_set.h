// Which kernels run on this machine.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/cpu/kernel_table.h"

namespace vitrine::cpu {

// The best table, or the one that `name` ("amx", "avx512", "avxvnni", "avx2", "portable") asks for;
// empty: the best. INVALID_ARGUMENT: no such name. UNAVAILABLE: this machine or this build lacks
// it.
absl::StatusOr<const KernelTable*> SelectKernels(std::string_view name);

}  // namespace vitrine::cpu
