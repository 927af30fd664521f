// Kernels for processors without a graphics card beside them.
//
// Ops are recorded and run together, one dispatch of the thread pool per step. Results are equal
// bit for bit for every batch size, chunking, thread count and instruction set:
//
//   1. Integer sums of a block of 32 columns are exact, so their order does not matter.
//   2. One output per SIMD lane; blocks are added in ascending order; no sum crosses lanes, tiles
//      or threads.
//   3. A row is normalised, quantised and rotated from its own values only.
//   4. Attention is cut into segments at absolute positions, merged in ascending order.
//   5. Every fused multiply-add is written down, and denormal numbers are zero.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace vitrine {

// The environment variable VITRINE_CPU_ISA (amx, avx512, avxvnni, avx2 or portable) forces an
// instruction set. INVALID_ARGUMENT: no such set, or threads out of range. UNAVAILABLE: the machine
// lacks the set.
absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const BackendOptions& options);

}  // namespace vitrine
