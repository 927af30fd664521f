#include "server/serve_command.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "absl/strings/ascii.h"
#include "kernels/backend_factory.h"
#include "model/attention_reader.h"
#include "model/model_files.h"
#include "model/status.h"
#include "server/clock.h"
#include "server/grpc_server.h"
#include "server/listen_address.h"
#include "server/offline_commands.h"
#include "server/signals.h"

namespace vitrine::server {
namespace {

// Beyond this the process ends whatever hangs.
constexpr unsigned kDrainGraceSeconds = 10;

// As the protocol spells it: "q4_1", "bf16".
std::string TypeName(DType dtype) {
  const std::string_view name = TraitsOf(dtype).name;
  return absl::AsciiStrToLower(absl::string_view(name.data(), name.size()));
}

ServedModel Describe(const LoadedModel& model, const Backend& backend) {
  const ModelConfig& config = model.config;
  const RunnerLimits& limits = model.runner->limits();
  ServedModel served;
  served.name = config.name;
  served.tokenizer = model.tokenizer.get();
  served.vocabulary = std::min(model.tokenizer->vocabulary(), config.vocabulary);
  served.context_length = limits.context_length;
  served.kv_tokens = int64_t{limits.num_blocks} * kKvBlockTokens;
  served.longest_token = LongestToken(*model.tokenizer);
  if (model.chat_template.ok()) {
    served.chat_template = &*model.chat_template;
  } else if (!absl::IsNotFound(model.chat_template.status())) {
    served.no_chat_reason = "the chat template cannot be used: ";
    served.no_chat_reason += std::string(model.chat_template.status().message());
  }
  served.architecture = config.architecture;
  served.num_layers = config.num_layers;
  served.num_heads = config.num_heads;
  served.num_kv_heads = config.num_kv_heads;
  served.head_dim = config.head_dim;
  served.d_model = config.d_model;
  served.trained_context_length = config.context_length;
  for (const WeightShare& share : model.weight_shares) {
    served.weight_types.push_back(
        {.name = TypeName(share.dtype), .tensors = share.tensors, .bytes = share.bytes});
  }
  served.parameters = static_cast<uint64_t>(model.parameters);
  served.sampling = model.sampling;
  served.backend = std::string(backend.name());
  served.device = backend.description();
  served.numerics = backend.numerics() == Numerics::kExact ? "exact" : "fast";
  served.kv_dtype = TypeName(model.kv_dtype);
  served.kv_bytes = model.kv_bytes;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    served.windows.push_back(config.layer(layer).window);
  }
  served.max_reduced_pairs = AttentionReader::MaxReducedHeads(config);
  return served;
}

// One line that grows: converting weights takes as long as a person begins to wonder.
void PrintProgress(int layers, int all_layers) {
  std::fprintf(stderr, "\rconverting weights: layer %d of %d%s", layers, all_layers,
               layers == all_layers ? "\n" : "");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelOnBackend>> LoadModelOnBackend(const std::string& path,
                                                                   const ServerOptions& options) {
  VITRINE_ASSIGN_OR_RETURN(const auto files, ModelFiles::Open(path));
  return LoadModelOnBackend(*files, options);
}

absl::StatusOr<std::unique_ptr<ModelOnBackend>> LoadModelOnBackend(ModelFiles& files,
                                                                   const ServerOptions& options) {
  auto loaded = std::make_unique<ModelOnBackend>();
  VITRINE_ASSIGN_OR_RETURN(
      loaded->backend,
      CreateBackend(options.backend, {.numerics = options.numerics, .threads = options.threads}));
  LoadOptions load = options.load;
  if (load.weights.dtype) load.weights.progress = PrintProgress;
  VITRINE_ASSIGN_OR_RETURN(loaded->model, LoadModel(files, *loaded->backend, load));
  // Elsewhere the host would only wait for itself.
  loaded->model.runner->set_runs_ahead(loaded->backend->records());
  loaded->served = Describe(loaded->model, *loaded->backend);
  loaded->served.inspection_bytes = options.inspection_bytes;
  return loaded;
}

int RunServer(const ServerOptions& options) {
  SignalWatcher signals;
  if (absl::Status status = CheckListenAddressIsFree(options.listen); !status.ok()) {
    return ReportError(status);
  }
  const auto loaded = LoadModelOnBackend(options.model, options);
  if (!loaded.ok()) return ReportError(loaded.status());
  ModelOnBackend& model = **loaded;
  const SteadyClock clock;
  const auto server = GrpcServer::Start(options, model.served, *model.model.runner, clock);
  if (!server.ok()) return ReportError(server.status());

  signals.StartServing();
  std::fprintf(stderr, "serving %s on %s (%s)\n", model.served.name.c_str(),
               model.served.backend.c_str(), model.served.device.c_str());
  if (const std::string metrics = (*server)->metrics_address(); !metrics.empty()) {
    std::fprintf(stderr, "metrics on http://%s/metrics\n", metrics.c_str());
  }
  std::printf("listening on %s\n", (*server)->address().c_str());
  std::fflush(stdout);

  signals.WaitForFirst([&] { return !(*server)->status().ok(); });
  std::fprintf(stderr, "draining\n");
  alarm(static_cast<unsigned>(options.drain_us / 1'000'000) + kDrainGraceSeconds);
  (*server)->Drain([&] { return signals.HasSecond(); });
  // Whoever restarts the process shall see that it did not end by itself.
  if (const absl::Status status = (*server)->status(); !status.ok()) return ReportError(status);
  std::fprintf(stderr, "stopped\n");
  return 0;
}

}  // namespace vitrine::server
