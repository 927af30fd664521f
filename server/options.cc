#include "server/options.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "model/status.h"
#include "server/attention_lab_command.h"

ABSL_FLAG(std::string, model, "", "GGUF file or Hugging Face folder of the model to serve");
ABSL_FLAG(std::string, listen, "127.0.0.1:50051",
          "HOST:PORT or unix:PATH; port 0 takes a free one and prints it");
ABSL_FLAG(bool, insecure_listen, false,
          "allow plain text on addresses other than loopback and Unix sockets");
ABSL_FLAG(std::string, backend, "auto", "auto, cpu, cuda or reference");
ABSL_FLAG(int, threads, 0, "threads that compute; 0: one per core");
ABSL_FLAG(std::string, numerics, "fast", "fast or exact");
ABSL_FLAG(std::string, kv_dtype, "auto", "auto, f32, bf16 or q8_0");
ABSL_FLAG(
    std::string, weights, "file",
    "type that weight matrices get while they are loaded: file (as they are), f32, bf16, q8_0, "
    "q4_0 or q4_1");
ABSL_FLAG(int, context_length, 0, "most tokens of prompt and answer; 0: what the model knows");
ABSL_FLAG(int64_t, kv_cache_bytes, 0, "size of the key and value cache; 0: chosen");
ABSL_FLAG(int, max_running_sequences, 32, "sequences computed at once");
ABSL_FLAG(int, max_step_tokens, 256, "tokens computed in one step");
ABSL_FLAG(int, prefill_chunk_tokens, 64,
          "prompt tokens computed in one step while other requests wait or run");
ABSL_FLAG(bool, optimistic_admission, false,
          "admit requests that can start rather than those that can finish; may preempt");
ABSL_FLAG(int, max_queued_requests, 256, "requests that may wait");
ABSL_FLAG(int64_t, max_queued_tokens, 262144, "prompt tokens that may wait");
ABSL_FLAG(bool, prefix_cache, true, "reuse the keys and values of equal prompt beginnings");
ABSL_FLAG(absl::Duration, max_request_time, absl::Hours(1), "deadline of requests that bring none");
ABSL_FLAG(absl::Duration, no_progress_timeout, absl::Seconds(30),
          "a client that accepts nothing for so long loses its stream");
ABSL_FLAG(absl::Duration, stall_timeout, absl::Seconds(5),
          "a step that takes longer makes health NOT_SERVING");
ABSL_FLAG(absl::Duration, drain_timeout, absl::Seconds(30),
          "how long running requests may go on after SIGTERM");
ABSL_FLAG(std::string, tls_cert, "", "PEM file: certificate chain of the server");
ABSL_FLAG(std::string, tls_key, "", "PEM file: its private key");
ABSL_FLAG(std::string, tls_client_ca, "", "PEM file: authority of client certificates");
ABSL_FLAG(bool, allow_inspection, false, "requests may ask what the model attended to");
ABSL_FLAG(int64_t, inspection_bytes, int64_t{256} << 20,
          "most bytes of attention that one request may ask for, and of all kept requests");
ABSL_FLAG(absl::Duration, inspection_retention, absl::Minutes(10),
          "how long a request that has ended can be looked at");
ABSL_FLAG(std::string, auth_tokens_file, "",
          "file of callers, one per line: NAME SCOPES TOKEN, scopes of data,inspection,control; "
          "then every call but health needs a bearer token");
ABSL_FLAG(bool, reflection, false, "offer the reflection service");
ABSL_FLAG(std::string, metrics_listen, "",
          "HOST:PORT of /metrics for Prometheus, over plain HTTP; port 0 takes a free one");
ABSL_FLAG(bool, log_requests, false, "one line to stderr per request, without its text");
ABSL_FLAG(bool, parse_special, false, "tokenize: texts of control tokens become these tokens");
ABSL_FLAG(bool, json, false, "bench-model, attention-lab: one JSON object instead of tables");
ABSL_FLAG(std::string, now, "", "render-chat: what strftime_now prints, 2025-03-14T15:09:26");

namespace vitrine::server {
namespace {

constexpr char kUsage[] =
    "vitrine-server --model FILE [flags]         serve\n"
    "vitrine-server inspect-model FILE           what a model file holds\n"
    "vitrine-server check-model FILE [flags]     load everything, generate two tokens\n"
    "vitrine-server tokenize FILE                text on stdin, ids on stdout\n"
    "vitrine-server render-chat FILE|TEMPLATE    messages as JSON on stdin, the prompt on stdout\n"
    "vitrine-server bench-model FILE [flags]     tokens per second beside the machine's limits\n"
    "vitrine-server attention-lab [EXAMPLE]      attention step by step, without a model";

constexpr std::array<const char*, 5> kCommands = {"inspect-model", "check-model", "tokenize",
                                                  "render-chat", "bench-model"};

absl::Status FlagError(absl::string_view flag, absl::string_view rule) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, " ", rule));
}

absl::Status CheckRange(absl::string_view flag, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return FlagError(flag, absl::StrCat("must be in [", low, ", ", high, "], is ", value));
}

absl::Status CheckDuration(absl::string_view flag, absl::Duration value, absl::Duration low) {
  if (value >= low && value <= absl::Hours(24)) return absl::OkStatus();
  return FlagError(flag, absl::StrCat("must be in [", absl::FormatDuration(low), ", 24h], is ",
                                      absl::FormatDuration(value)));
}

bool IsLoopback(absl::string_view listen) {
  return absl::StartsWith(listen, "unix:") || absl::StartsWith(listen, "127.") ||
         absl::StartsWith(listen, "localhost:") || absl::StartsWith(listen, "[::1]:");
}

bool IsHostAndPort(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  const std::string port = colon == std::string::npos ? "" : listen.substr(colon + 1);
  int number = -1;
  return colon != 0 && port.size() <= 5 && absl::SimpleAtoi(port, &number) && number >= 0 &&
         number <= 65535;
}

absl::Status CheckListen(const std::string& listen, bool is_protected) {
  if (!absl::StartsWith(listen, "unix:")) {
    if (!IsHostAndPort(listen)) {
      return FlagError("listen", "must be HOST:PORT with a port in [0, 65535], or unix:PATH");
    }
  } else if (listen == "unix:") {
    return FlagError("listen", "needs a path after unix:");
  }
  if (!is_protected && !IsLoopback(listen)) {
    return FlagError("listen",
                     "is not a loopback address: set --tls_cert and --tls_key, or "
                     "--insecure_listen to serve plain text");
  }
  return absl::OkStatus();
}

absl::Status CheckMetricsListen(const std::string& listen, bool is_insecure_allowed) {
  if (listen.empty()) return absl::OkStatus();
  if (absl::StartsWith(listen, "unix:") || !IsHostAndPort(listen)) {
    return FlagError("metrics_listen", "must be HOST:PORT with a port in [0, 65535]");
  }
  if (is_insecure_allowed || IsLoopback(listen)) return absl::OkStatus();
  return FlagError("metrics_listen",
                   "is not a loopback address: set --insecure_listen to serve plain text");
}

// The type that --weights names; none: "file".
absl::StatusOr<std::optional<DType>> ReadWeightType() {
  struct Name {
    std::string_view name;
    DType dtype;
  };
  constexpr Name kNames[] = {{"f32", DType::kF32},
                             {"bf16", DType::kBF16},
                             {"q8_0", DType::kQ8_0},
                             {"q4_0", DType::kQ4_0},
                             {"q4_1", DType::kQ4_1}};
  const std::string given = absl::GetFlag(FLAGS_weights);
  if (given == "file") return std::nullopt;
  for (const Name& known : kNames) {
    if (known.name == given) return known.dtype;
  }
  return FlagError("weights", "must be file, f32, bf16, q8_0, q4_0 or q4_1");
}

absl::Status ReadModelFlags(ServerOptions& options) {
  options.model = absl::GetFlag(FLAGS_model);
  options.backend = absl::GetFlag(FLAGS_backend);
  options.threads = absl::GetFlag(FLAGS_threads);
  VITRINE_RETURN_IF_ERROR(CheckRange("threads", options.threads, 0, 1024));

  const std::string numerics = absl::GetFlag(FLAGS_numerics);
  if (numerics != "fast" && numerics != "exact") {
    return FlagError("numerics", "must be fast or exact");
  }
  options.numerics = numerics == "fast" ? Numerics::kFast : Numerics::kExact;

  const std::string kv_dtype = absl::GetFlag(FLAGS_kv_dtype);
  if (kv_dtype == "f32") {
    options.load.kv_dtype = KvDType::kF32;
  } else if (kv_dtype == "bf16") {
    options.load.kv_dtype = KvDType::kBF16;
  } else if (kv_dtype == "q8_0") {
    options.load.kv_dtype = KvDType::kQ8_0;
  } else if (kv_dtype != "auto") {
    return FlagError("kv_dtype", "must be auto, f32, bf16 or q8_0");
  }
  VITRINE_ASSIGN_OR_RETURN(options.load.weights.dtype, ReadWeightType());
  options.load.context_length = absl::GetFlag(FLAGS_context_length);
  options.load.kv_cache_bytes = absl::GetFlag(FLAGS_kv_cache_bytes);
  VITRINE_RETURN_IF_ERROR(CheckRange("context_length", options.load.context_length, 0, 1 << 24));
  return CheckRange("kv_cache_bytes", options.load.kv_cache_bytes, 0, int64_t{1} << 44);
}

absl::Status ReadLimits(ServerOptions& options) {
  SchedulerOptions& scheduler = options.scheduler;
  scheduler.max_running_sequences = absl::GetFlag(FLAGS_max_running_sequences);
  scheduler.max_step_tokens = absl::GetFlag(FLAGS_max_step_tokens);
  scheduler.prefill_chunk_tokens = absl::GetFlag(FLAGS_prefill_chunk_tokens);
  scheduler.optimistic_admission = absl::GetFlag(FLAGS_optimistic_admission);
  VITRINE_RETURN_IF_ERROR(
      CheckRange("max_running_sequences", scheduler.max_running_sequences, 1, 4096));
  // One row per running sequence must fit, so that no stream skips a step.
  VITRINE_RETURN_IF_ERROR(CheckRange("max_step_tokens", scheduler.max_step_tokens,
                                     scheduler.max_running_sequences, 1 << 16));
  VITRINE_RETURN_IF_ERROR(CheckRange("prefill_chunk_tokens", scheduler.prefill_chunk_tokens, 1,
                                     scheduler.max_step_tokens));
  options.load.max_step_rows = scheduler.max_step_tokens;
  options.load.max_step_sequences = scheduler.max_running_sequences;
  options.request.max_running_sequences = scheduler.max_running_sequences;
  options.prefix_cache = absl::GetFlag(FLAGS_prefix_cache);

  options.queue = {.max_requests = absl::GetFlag(FLAGS_max_queued_requests),
                   .max_prompt_tokens = absl::GetFlag(FLAGS_max_queued_tokens)};
  VITRINE_RETURN_IF_ERROR(
      CheckRange("max_queued_requests", options.queue.max_requests, 1, 1 << 20));
  VITRINE_RETURN_IF_ERROR(
      CheckRange("max_queued_tokens", options.queue.max_prompt_tokens, 1, int64_t{1} << 40));

  const absl::Duration request_time = absl::GetFlag(FLAGS_max_request_time);
  const absl::Duration no_progress = absl::GetFlag(FLAGS_no_progress_timeout);
  const absl::Duration stall = absl::GetFlag(FLAGS_stall_timeout);
  const absl::Duration drain = absl::GetFlag(FLAGS_drain_timeout);
  VITRINE_RETURN_IF_ERROR(CheckDuration("max_request_time", request_time, absl::Milliseconds(1)));
  VITRINE_RETURN_IF_ERROR(
      CheckDuration("no_progress_timeout", no_progress, absl::Milliseconds(100)));
  VITRINE_RETURN_IF_ERROR(CheckDuration("stall_timeout", stall, absl::Milliseconds(100)));
  VITRINE_RETURN_IF_ERROR(CheckDuration("drain_timeout", drain, absl::ZeroDuration()));
  options.request.max_request_us = absl::ToInt64Microseconds(request_time);
  options.transport.no_progress_us = absl::ToInt64Microseconds(no_progress);
  options.stall_us = absl::ToInt64Microseconds(stall);
  options.drain_us = absl::ToInt64Microseconds(drain);
  return absl::OkStatus();
}

absl::Status ReadInspectionFlags(ServerOptions& options) {
  options.allow_inspection = absl::GetFlag(FLAGS_allow_inspection);
  const int64_t bytes = absl::GetFlag(FLAGS_inspection_bytes);
  VITRINE_RETURN_IF_ERROR(CheckRange("inspection_bytes", bytes, 1, int64_t{1} << 40));
  const absl::Duration retention = absl::GetFlag(FLAGS_inspection_retention);
  VITRINE_RETURN_IF_ERROR(CheckDuration("inspection_retention", retention, absl::ZeroDuration()));
  if (!options.allow_inspection) return absl::OkStatus();
  options.inspection_bytes = bytes;
  options.inspection_retention_us = absl::ToInt64Microseconds(retention);
  // One row of every running sequence, and some more of prompts.
  constexpr int kPromptRows = 64;
  options.scheduler.max_traced_rows = options.scheduler.max_running_sequences + kPromptRows;
  options.load.max_traced_rows = options.scheduler.max_traced_rows;
  return absl::OkStatus();
}

absl::Status ReadTransportFlags(ServerOptions& options) {
  options.listen = absl::GetFlag(FLAGS_listen);
  options.insecure_listen = absl::GetFlag(FLAGS_insecure_listen);
  options.tls = {.certificate = absl::GetFlag(FLAGS_tls_cert),
                 .key = absl::GetFlag(FLAGS_tls_key),
                 .client_ca = absl::GetFlag(FLAGS_tls_client_ca)};
  if (options.tls.certificate.empty() != options.tls.key.empty()) {
    return FlagError("tls_cert", "and --tls_key must be set together");
  }
  if (!options.tls.client_ca.empty() && !options.tls.enabled()) {
    return FlagError("tls_client_ca", "needs --tls_cert and --tls_key");
  }
  options.auth_tokens_file = absl::GetFlag(FLAGS_auth_tokens_file);
  options.reflection = absl::GetFlag(FLAGS_reflection);
  // gRPC's own service, which asks nobody who calls.
  if (options.reflection && !options.auth_tokens_file.empty()) {
    return FlagError("reflection", "cannot be protected: not together with --auth_tokens_file");
  }
  options.log_requests = absl::GetFlag(FLAGS_log_requests);
  options.metrics_listen = absl::GetFlag(FLAGS_metrics_listen);
  VITRINE_RETURN_IF_ERROR(CheckMetricsListen(options.metrics_listen, options.insecure_listen));
  return CheckListen(options.listen, options.tls.enabled() || options.insecure_listen);
}

absl::Status ReadCommand(const std::vector<char*>& positional, ServerOptions& options) {
  const bool is_lab = positional.size() >= 2 && absl::string_view(positional[1]) == "attention-lab";
  if (const std::string flag = LabFlagInUse(); !is_lab && !flag.empty()) {
    return FlagError(flag, "goes with attention-lab only");
  }
  options.parse_special = absl::GetFlag(FLAGS_parse_special);
  options.json = absl::GetFlag(FLAGS_json);
  options.now = absl::GetFlag(FLAGS_now);
  if (positional.size() < 2) {
    if (options.model.empty()) return FlagError("model", "must name a model file; see --help");
    return absl::OkStatus();
  }
  options.command = positional[1];
  options.arguments.assign(positional.begin() + 2, positional.end());
  if (is_lab) {
    if (options.arguments.size() <= 1) return absl::OkStatus();
    return absl::InvalidArgumentError("attention-lab takes one argument, an example, or none");
  }
  for (const char* known : kCommands) {
    if (options.command != known) continue;
    if (options.arguments.size() == 1) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(known, " takes one argument, the model file"));
  }
  return absl::InvalidArgumentError("unknown command; see --help");
}

}  // namespace

absl::StatusOr<ServerOptions> ParseOptions(int argc, char** argv) {
  absl::SetProgramUsageMessage(kUsage);
  const std::vector<char*> positional = absl::ParseCommandLine(argc, argv);
  ServerOptions options;
  VITRINE_RETURN_IF_ERROR(ReadModelFlags(options));
  VITRINE_RETURN_IF_ERROR(ReadLimits(options));
  VITRINE_RETURN_IF_ERROR(ReadInspectionFlags(options));
  VITRINE_RETURN_IF_ERROR(ReadTransportFlags(options));
  VITRINE_RETURN_IF_ERROR(ReadCommand(positional, options));
  return options;
}

}  // namespace vitrine::server
