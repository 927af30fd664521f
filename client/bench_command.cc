#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/bench_report.h"
#include "client/bench_run.h"
#include "client/bench_workload.h"
#include "client/cancellation.h"
#include "client/command_line.h"
#include "client/commands.h"
#include "client/connection.h"
#include "client/exit_code.h"
#include "client/generate_client.h"
#include "client/report.h"
#include "client/request_flags.h"
#include "vitrine/v1/control.pb.h"

namespace vitrine::client {
namespace {

constexpr uint64_t kDefaultRequests = 64;

struct BenchFlags {
  BenchOptions run;
  bool has_concurrency = false;
  uint32_t connections = 1;
  WorkloadOptions workload;
  ServiceLevel level;
  std::optional<uint32_t> warmup;
};

FlagSetter TakesLength(LengthDistribution* length) {
  return [length](std::string_view value) {
    absl::StatusOr<LengthDistribution> parsed = LengthDistribution::Parse(value);
    if (parsed.ok()) *length = *parsed;
    return parsed.status();
  };
}

// "PROMPT_TOKENS[:OUTPUT_TOKENS]@TIME".
FlagSetter TakesInjection(std::vector<Injection>* injections) {
  return [injections](std::string_view value) {
    Injection injection = {.label = std::string(value)};
    const size_t at = std::min(value.find('@'), value.size());
    const size_t colon = std::min(value.find(':'), at);
    const auto count = [](uint32_t* out) {
      return TakesInteger(1, 1 << 20, [out](int64_t v) { *out = static_cast<uint32_t>(v); });
    };
    const bool good =
        at < value.size() && count(&injection.prompt_tokens)(value.substr(0, colon)).ok() &&
        (colon == at ||
         count(&injection.output_tokens)(value.substr(colon + 1, at - colon - 1)).ok()) &&
        TakesDuration([&injection](std::chrono::nanoseconds v) { injection.at = v; })(
            value.substr(at + 1))
            .ok();
    if (!good) {
      return absl::InvalidArgumentError(
          "takes PROMPT_TOKENS:OUTPUT_TOKENS@TIME, such as 6000:1@5s");
    }
    const auto later =
        std::upper_bound(injections->begin(), injections->end(), injection,
                         [](const Injection& a, const Injection& b) { return a.at < b.at; });
    injections->insert(later, std::move(injection));
    return absl::OkStatus();
  };
}

void AddLoadFlags(CommandLine* command_line, BenchFlags* flags) {
  BenchOptions* run = &flags->run;
  command_line->Section("Load");
  command_line->Add({.name = "concurrency",
                     .placeholder = "COUNT",
                     .help = "Closed loop: so many requests under way at all times; default 1.",
                     .set = TakesInteger(1, 65536, [flags](int64_t v) {
                       flags->has_concurrency = true;
                       flags->run.concurrency = static_cast<uint32_t>(v);
                     })});
  command_line->Add({.name = "rate",
                     .placeholder = "NUMBER",
                     .help = "Open loop: mean arrivals per second, Poisson; excludes "
                             "--concurrency.",
                     .set = TakesPositive([run](double v) { run->rate = v; })});
  command_line->Add(
      {.name = "connections",
       .placeholder = "COUNT",
       .help = "Connections that requests take in turn; a server limits what is under "
               "way on each; default 1.",
       .set = TakesInteger(1, 256,
                           [flags](int64_t v) { flags->connections = static_cast<uint32_t>(v); })});
  command_line->Add({.name = "requests",
                     .placeholder = "COUNT",
                     .help = absl::StrCat("Requests to send; default ", kDefaultRequests,
                                          ", or without end with --duration."),
                     .set = TakesInteger(1, std::numeric_limits<int64_t>::max(), [run](int64_t v) {
                       run->requests = static_cast<uint64_t>(v);
                     })});
  command_line->Add(
      {.name = "duration",
       .placeholder = "TIME",
       .help = "Sends nothing new after this time.",
       .set = TakesDuration([run](std::chrono::nanoseconds v) { run->duration = v; })});
  command_line->Add({.name = "warmup",
                     .placeholder = "COUNT",
                     .help = "Requests sent before, not counted; default: the concurrency, 1 with "
                             "--rate.",
                     .set = TakesUint32([flags](uint32_t v) { flags->warmup = v; })});
  command_line->Add({.name = "inject",
                     .placeholder = "PROMPT:OUTPUT@TIME",
                     .help = "One more request of so many prompt and output tokens at this time, "
                             "reported on its own.",
                     .set = TakesInjection(&run->injections),
                     .repeatable = true});
  command_line->Add(
      {.name = "slo_ttft",
       .placeholder = "TIME",
       .help = "Counts a request as good only when its first token took no longer.",
       .set = TakesDuration([flags](std::chrono::nanoseconds v) { flags->level.ttft = v; })});
  command_line->Add(
      {.name = "slo_tpot",
       .placeholder = "TIME",
       .help = "Counts a request as good only when its further tokens took no longer each.",
       .set = TakesDuration([flags](std::chrono::nanoseconds v) { flags->level.tpot = v; })});
}

void AddWorkloadFlags(CommandLine* command_line, WorkloadOptions* workload) {
  command_line->Section("Requests (random token ids)");
  command_line->Add({.name = "prompt_tokens",
                     .placeholder = "LENGTH",
                     .help = "128, uniform 64-256 or lognormal:MEDIAN:SIGMA:MAX; default 128.",
                     .set = TakesLength(&workload->prompt_tokens)});
  command_line->Add({.name = "output_tokens",
                     .placeholder = "LENGTH",
                     .help = "As --prompt_tokens; default 128.",
                     .set = TakesLength(&workload->output_tokens)});
  command_line->Add({.name = "shared_prefix",
                     .placeholder = "TOKENS",
                     .help = "Leading tokens that all prompts share; default 0.",
                     .set = TakesUint32([workload](uint32_t v) { workload->shared_prefix = v; })});
  command_line->Add({.name = "prefix_groups",
                     .placeholder = "COUNT",
                     .help = "Different shared prefixes, taken in turn; default 1.",
                     .set = TakesInteger(1, 1 << 20, [workload](int64_t v) {
                       workload->prefix_groups = static_cast<uint32_t>(v);
                     })});
  command_line->Add(
      {.name = "cache_salt",
       .placeholder = "TEXT",
       .help = "Shares cached prefixes with earlier runs of the same salt; default: a "
               "fresh one.",
       .set = TakesText([workload](const std::string& v) { workload->base.set_cache_salt(v); })});
  command_line->Add({.name = "load_seed",
                     .placeholder = "NUMBER",
                     .help = "The same seed gives the same lengths, prompts and arrivals; "
                             "default 1.",
                     .set = TakesUint64([workload](uint64_t v) { workload->seed = v; })});
  command_line->Add({.name = "ignore_eos",
                     .placeholder = "",
                     .help = "Answers have their full length; default true.",
                     .set = TakesSwitch([workload](bool v) {
                       workload->base.mutable_stop()->set_ignore_eos(v);
                     })});
}

// Equal prompts of an earlier run must not make this one faster.
std::string FreshSalt() {
  std::random_device device;
  return absl::StrCat("bench-", absl::Hex(device()), absl::Hex(device()));
}

absl::Status Complete(BenchFlags* flags) {
  BenchOptions& run = flags->run;
  if (run.rate > 0.0 && flags->has_concurrency) {
    return absl::InvalidArgumentError("--rate and --concurrency exclude each other");
  }
  v1::GenerateRequest& base = flags->workload.base;
  if (base.cache_salt().empty()) base.set_cache_salt(FreshSalt());
  if (!run.requests && !run.duration) run.requests = kDefaultRequests;
  return absl::OkStatus();
}

using Clients = std::vector<std::unique_ptr<GenerateClient>>;

absl::StatusOr<Clients> Connect(uint32_t count, const ConnectionOptions& options,
                                Cancellation* cancellation) {
  Clients clients;
  while (clients.size() < count) {
    absl::StatusOr<std::unique_ptr<GenerateClient>> client = ConnectToServer(options, cancellation);
    if (!client.ok()) return client.status();
    clients.push_back(*std::move(client));
  }
  return clients;
}

// Sends requests that share no prefix with those measured.
void WarmUp(const Clients& clients, const BenchFlags& flags, Cancellation* cancellation) {
  const uint32_t concurrency = flags.run.concurrency;
  const uint32_t requests = flags.warmup.value_or(concurrency);
  if (requests == 0) return;
  WorkloadOptions options = flags.workload;
  options.seed = ~options.seed;
  BenchOptions run;
  run.concurrency = concurrency;
  run.requests = requests;
  run.show_progress = false;
  RunBenchmark(clients, Workload(std::move(options)), run, cancellation);
}

std::string LoadName(const BenchOptions& run) {
  return run.rate > 0.0 ? absl::StrCat("rate ", run.rate, "/s")
                        : absl::StrCat("concurrency ", run.concurrency);
}

}  // namespace

int RunBench(const std::vector<std::string>& arguments, Cancellation* cancellation) {
  ConnectionFlags connection;
  BenchFlags flags;
  v1::GenerateRequest* base = &flags.workload.base;
  base->mutable_sampling()->set_temperature(0.0f);
  base->mutable_stop()->set_ignore_eos(true);
  flags.workload.prompt_tokens = flags.workload.output_tokens = *LengthDistribution::Parse("128");
  CommandLine command_line("bench", "",
                           "Sends a load and prints throughput and latencies. Exit code 1 when a "
                           "request failed\nother than by being refused, or none was completed.");
  AddLoadFlags(&command_line, &flags);
  AddWorkloadFlags(&command_line, &flags.workload);
  AddSamplingFlags(&command_line, base->mutable_sampling());
  AddConnectionFlags(&command_line, &connection);
  absl::Status parsed = ParseWithConnection(command_line, arguments, &connection);
  if (parsed.ok()) parsed = Complete(&flags);
  if (!parsed.ok()) return ReportUsage(command_line, parsed);

  const absl::StatusOr<Clients> clients =
      Connect(flags.connections, connection.options, cancellation);
  if (!clients.ok()) return ReportNoConnection(clients.status());
  const absl::StatusOr<v1::DescribeModelResponse> model =
      clients->front()->DescribeModel(cancellation);
  if (!model.ok()) return ReportFailure(model.status());
  if (model->vocabulary_size() == 0) {
    return ReportFailure(absl::InternalError("the server does not say its vocabulary size"));
  }
  flags.workload.vocabulary = model->vocabulary_size();

  WarmUp(*clients, flags, cancellation);
  const BenchReport report = MakeReport(
      LoadName(flags.run),
      RunBenchmark(*clients, Workload(flags.workload), flags.run, cancellation), flags.level);
  const int exit_code =
      PrintAnswer(connection.json ? ReportJson(report) + "\n" : ReportText(report));
  if (exit_code != kOk) return exit_code;
  if (cancellation->cancelled()) return ReportFailure(absl::CancelledError("cancelled"));
  return report.failed() == 0 && report.completed > 0 ? kOk : kRequestFailed;
}

}  // namespace vitrine::client
