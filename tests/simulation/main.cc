// usage: simulation [--seeds=N] [--first=SEED] [--expect_violation]
//
// Runs N seeds from SEED on. Exit code 0: no invariant was violated and every fault point fired;
// with --expect_violation: one was violated.
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/simulation/simulation.h"

namespace {

using vitrine::server::FaultCounts;
using vitrine::server::FaultPoint;
using vitrine::server::NameOf;
using vitrine::server::SimulationReport;

bool AllFired(const FaultCounts& fired) {
  bool all = true;
  for (size_t i = 0; i < fired.size(); ++i) {
    const char* name = NameOf(static_cast<FaultPoint>(i));
    std::printf("  %-24s %12" PRId64 "%s\n", name, fired[i], fired[i] == 0 ? "  NEVER FIRED" : "");
    all = all && fired[i] > 0;
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  uint64_t seeds = 200;
  uint64_t first = 1;
  bool expects_violation = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--seeds=", 8) == 0) {
      seeds = std::strtoull(argv[i] + 8, nullptr, 10);
    } else if (std::strncmp(argv[i], "--first=", 8) == 0) {
      first = std::strtoull(argv[i] + 8, nullptr, 10);
    } else if (std::strcmp(argv[i], "--expect_violation") == 0) {
      expects_violation = true;
    } else {
      std::fprintf(stderr, "unknown argument %s\n", argv[i]);
      return 2;
    }
  }
  FaultCounts fired = {};
  SimulationReport total;
  const auto began = std::chrono::steady_clock::now();
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    const SimulationReport report = vitrine::server::Simulate(seed);
    for (size_t i = 0; i < fired.size(); ++i) fired[i] += report.fired[i];
    total.requests += report.requests;
    total.steps += report.steps;
    total.tokens += report.tokens;
    total.simulated_us += report.simulated_us;
    if (report.violation.empty()) continue;
    std::printf("seed %" PRIu64 ": %s\nreplay with --first=%" PRIu64 " --seeds=1\n", seed,
                report.violation.c_str(), seed);
    return expects_violation ? 0 : 1;
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::printf("%" PRIu64 " seeds, %" PRId64 " requests, %" PRId64 " steps, %" PRId64
              " tokens read, %.0f s simulated in %.1f s: no violation\n",
              seeds, total.requests, total.steps, total.tokens,
              static_cast<double>(total.simulated_us) / 1e6, seconds);
  const bool all_fired = AllFired(fired);
  if (expects_violation) return 1;
  return all_fired || seeds < 200 ? 0 : 1;
}
