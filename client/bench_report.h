// From the times of single requests to the figures of a load test.
//
// Definitions, all on the client's monotonic clock. TTFT: from the intended time of sending to the
// first message that carries a token. E2E: to the last such message. TPOT: (E2E - TTFT) /
// (tokens - 1), for answers of at least two tokens. ITL: every gap between consecutive messages
// with tokens, pooled. Rates: over the time from the first intended sending to the last end.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {

// A message of a stream that carried tokens.
struct TokenMessage {
  std::chrono::nanoseconds at{0};  // Since the start of the test, as all times here.
  uint32_t tokens = 0;
};

// One request. Until it has ended, written by one thread at a time.
struct RequestRecord {
  std::string label;  // For requests that are reported one by one; empty = part of the load.
  std::chrono::nanoseconds arrival{0};  // When it was meant to be sent.
  std::chrono::nanoseconds end{0};
  std::vector<TokenMessage> messages;
  absl::Status status = absl::UnknownError("not ended");
  v1::Done done;  // With an OK status.
};

// Milliseconds by nearest rank; all 0 without samples.
struct Percentiles {
  double p50 = 0.0;
  double p90 = 0.0;
  double p99 = 0.0;
  double max = 0.0;
  size_t count = 0;
};

Percentiles PercentilesOf(std::vector<std::chrono::nanoseconds> samples);

// What a request must keep to count as good; unset = anything does.
struct ServiceLevel {
  std::optional<std::chrono::nanoseconds> ttft;
  std::optional<std::chrono::nanoseconds> tpot;
};

// A request reported on its own, beside the load.
struct LabelledResult {
  std::string label;
  std::string status;  // "OK" or the name of the code.
  double ttft_ms = 0.0;
  double e2e_ms = 0.0;
  // The steps of the server that computed its prompt, as the server reports them.
  uint32_t prefill_steps = 0;
  double mean_step_ms = 0.0;
  double longest_step_ms = 0.0;
  // Longest time between two messages of one stream of the load, from the request's arrival to its
  // first token. What no step explains is delivery.
  double longest_gap_ms = 0.0;
};

struct BenchReport {
  std::string load;  // "concurrency 8" or "rate 4/s".
  size_t requests = 0;
  size_t completed = 0;
  size_t refused = 0;                    // RESOURCE_EXHAUSTED.
  std::map<std::string, size_t> errors;  // The rest, by name of the code.
  double wall_s = 0.0;
  uint64_t output_tokens = 0;  // Of completed requests, as all that follows.
  uint64_t prompt_tokens = 0;
  uint64_t cached_prompt_tokens = 0;
  double output_tokens_per_s = 0.0;
  double total_tokens_per_s = 0.0;
  double requests_per_s = 0.0;
  double goodput_requests_per_s = 0.0;
  // Share of the prompt tokens that the server had to compute: the others were cached.
  double computed_prompt_share = 0.0;
  // Sum of the answers' token hashes: equal for equal answers, in whatever order they ended.
  uint64_t answers_hash = 0;
  size_t coalesced_messages = 0;  // Messages with several tokens: ITL is then between messages.
  Percentiles ttft;
  Percentiles tpot;
  Percentiles itl;
  Percentiles e2e;
  Percentiles refusal;       // From arrival to the refusal.
  Percentiles server_queue;  // As the server reports them.
  Percentiles server_prefill;
  std::vector<LabelledResult> labelled;

  size_t failed() const;  // Sum of errors.
};

BenchReport MakeReport(std::string load, const std::vector<RequestRecord>& records,
                       const ServiceLevel& level);

std::string ReportText(const BenchReport& report);
// One object on one line.
std::string ReportJson(const BenchReport& report);

}  // namespace vitrine::client
