// How kernels are executed, and the random sequence behind it.
#pragma once

#include <cstdint>

namespace vitrine::emu {

// The order in which ready threads run. Only kRandom shows order-dependent faults reliably.
enum class Order { kForward, kReverse, kRandom };
// When a cp.async really moves its bytes.
enum class Copies { kEarly, kLate, kRandom };

// Defaults come from the environment: EMU_SEED, EMU_ORDER, EMU_DEFERRED, EMU_PROTECT, EMU_FAULT_AT.
struct Options {
  uint64_t seed = 1;
  Order order = Order::kRandom;
  Copies copies = Copies::kLate;
  bool host_pointers = false;          // let kernels take pointers that no cudaMalloc returned
  bool strict_masks = true;            // a mask may not name a lane that has already returned
  bool deferred_streams = false;       // run stream work only when something waits for it
  bool protect_device_memory = false;  // host code that touches device memory faults
  uint64_t fault_at_launch = 0;        // the device fails in this launch of a kernel; 0: never
};
Options& options();

struct Stats {
  uint64_t launches = 0, blocks = 0, threads = 0, switches = 0, collectives = 0;
  uint64_t allocations = 0, synchronizations = 0, graph_launches = 0;  // Calls of the host.
  uint64_t uploads = 0, uploaded_bytes = 0;                            // Asynchronous copies.
};
Stats& stats();

// Restarts the random sequence of thread and stream order.
void Seed(uint64_t seed);
// A value below `n`; deterministic for a given seed.
uint64_t Random(uint64_t n);

}  // namespace vitrine::emu
