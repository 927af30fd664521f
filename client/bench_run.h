// Sends a workload to a server and takes the times.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/bench_report.h"
#include "client/bench_workload.h"
#include "client/cancellation.h"
#include "client/generate_client.h"

namespace vitrine::client {

// A single request beside the load, reported on its own.
struct Injection {
  std::string label;
  std::chrono::nanoseconds at{0};  // After the start.
  uint32_t prompt_tokens = 1;
  uint32_t output_tokens = 1;
};

struct BenchOptions {
  // Open loop: mean arrivals per second. 0 = closed loop, with `concurrency` requests under way.
  double rate = 0.0;
  uint32_t concurrency = 1;
  // At least one: how many, and until when new ones are sent.
  std::optional<uint64_t> requests;
  std::optional<std::chrono::nanoseconds> duration;
  std::vector<Injection> injections;  // By time.
  bool show_progress = true;
};

// Blocks until every request has ended. Requests go to the clients in turn, so that they may be
// more than one connection can have under way. `cancellation` stops sending and cancels what is
// under way.
std::vector<RequestRecord> RunBenchmark(std::span<const std::unique_ptr<GenerateClient>> clients,
                                        const Workload& workload, const BenchOptions& options,
                                        Cancellation* cancellation);

}  // namespace vitrine::client
