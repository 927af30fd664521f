// Everything an operator can set, and every limit in force, in one place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/loader.h"
#include "server/request_queue.h"
#include "server/scheduler.h"

namespace vitrine::server {

// What one request may ask for; checked before the queue.
struct RequestLimits {
  int max_request_bytes = 8 << 20;  // Of one message; gRPC refuses larger ones unread.
  int max_stop_strings = 16;
  int max_stop_string_bytes = 256;
  int max_stop_token_ids = 1024;
  int max_logit_biases = 1024;
  int64_t max_prompt_logprobs_bytes = 4 << 20;  // Of one message; what clients accept by default.
  int max_cache_salt_bytes = 64;
  int max_client_request_id_bytes = 128;
  int max_running_sequences = 1;  // As the scheduler's: all choices of a request run at once.
  int64_t max_request_us = 3600LL * 1'000'000;  // Deadline of a request that brings none.
};

// What one client may cost.
struct TransportLimits {
  int max_concurrent_streams = 128;  // Per connection.
  int max_metadata_bytes = 16 << 10;
  int max_event_bytes = 1 << 20;        // Of one streamed message; at least one token is sent.
  int max_unary_bytes = 4 << 20;        // What clients accept by default.
  int64_t no_progress_us = 30'000'000;  // A write that takes longer ends its stream.
  int64_t max_connection_idle_ms = 600'000;
};

struct TlsFiles {
  std::string certificate;
  std::string key;
  std::string client_ca;  // Set: clients must show a certificate of this authority.
  bool enabled() const { return !certificate.empty(); }
};

struct ServerOptions {
  std::string command;                 // Offline command; empty: serve.
  std::vector<std::string> arguments;  // Of the command.

  std::string model;
  std::string listen;
  bool insecure_listen = false;
  TlsFiles tls;
  std::string auth_tokens_file;  // Empty: everybody may call everything.
  bool reflection = false;
  std::string metrics_listen;  // HOST:PORT of plain HTTP; empty: no metrics.

  std::string backend;
  int threads = 0;
  Numerics numerics = Numerics::kFast;
  LoadOptions load;

  SchedulerOptions scheduler;
  bool prefix_cache = true;
  bool allow_inspection = false;
  int64_t inspection_bytes = 0;  // Of one answer, and of all records; 0: no allow_inspection.
  int64_t inspection_retention_us = 0;  // Of a record, after its request has ended.
  QueueLimits queue;
  RequestLimits request;
  TransportLimits transport;
  int64_t drain_us = 0;
  int64_t stall_us = 0;  // A step that takes longer makes health NOT_SERVING.
  bool log_requests = false;

  bool parse_special = false;  // Command tokenize.
  bool json = false;           // Command bench-model.
  std::string now;             // Command render-chat.
};

// Parses and checks the command line. INVALID_ARGUMENT names the flag and the rule. Unknown flags
// end the process with a message, --help with the list of flags (Abseil).
absl::StatusOr<ServerOptions> ParseOptions(int argc, char** argv);

}  // namespace vitrine::server
