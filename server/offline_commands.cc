#include "server/offline_commands.h"

#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/inspect.h"
#include "model/loader.h"
#include "model/status.h"
#include "model/tokenizer.h"
#include "model/tokenizer_files.h"
#include "server/attention_lab_command.h"
#include "server/bench_model.h"
#include "server/clock.h"
#include "server/delivery.h"
#include "server/engine.h"
#include "server/render_chat_command.h"
#include "server/serve_command.h"
#include "server/token_sink.h"

namespace vitrine::server {
namespace {

// Prints nothing; remembers.
class Collector final : public TokenSink {
 public:
  void OnPromptLogprobs(std::span<const PromptToken> /*prompt*/) override {}
  void OnToken(const AnswerToken& token) override { ids.push_back(token.id); }
  void OnEnd(const AnswerEnd& end) override { ending = end.ending; }

  std::vector<TokenId> ids;
  Ending ending = Ending::kCancelled;
};

absl::Status Tokenize(const std::string& path, bool parse_special) {
  VITRINE_ASSIGN_OR_RETURN(const auto tokenizer, OpenTokenizer(path));
  const std::string text{std::istreambuf_iterator<char>(std::cin),
                         std::istreambuf_iterator<char>()};
  VITRINE_ASSIGN_OR_RETURN(const Encoding encoding,
                           tokenizer->Encode(text, {.parse_special = parse_special}));
  std::string line;
  for (const TokenId id : encoding.ids) {
    if (!line.empty()) line += ' ';
    line += std::to_string(id);
  }
  std::puts(line.c_str());
  return absl::OkStatus();
}

absl::Status Inspect(const std::string& path) {
  VITRINE_ASSIGN_OR_RETURN(const std::string report, InspectModel(path));
  std::fwrite(report.data(), 1, report.size(), stdout);
  return absl::OkStatus();
}

absl::Status CheckModel(const std::string& path, const ServerOptions& options) {
  constexpr int kTokens = 2;
  VITRINE_ASSIGN_OR_RETURN(const auto loaded, LoadModelOnBackend(path, options));
  const Tokenizer& tokenizer = *loaded->model.tokenizer;
  const SteadyClock clock;
  RequestCounters counters;
  RequestQueue queue(options.queue, counters);
  Delivery delivery(tokenizer, counters, {});
  Engine engine({.scheduler = options.scheduler}, *loaded->model.runner, queue, delivery, clock);
  const auto collector = std::make_shared<Collector>();
  GenerationRequest request;
  request.prompt.push_back(std::max(0, tokenizer.bos_id()));
  request.stop.max_length = std::min(loaded->served.context_length, 1 + kTokens);
  request.stop.ignore_eos = true;
  request.arrival_us = clock.NowMicros();
  VITRINE_RETURN_IF_ERROR(queue.Push(
      std::make_shared<ActiveRequest>("check", std::move(request), collector), clock.NowMicros()));
  while (engine.Turn()) {
  }
  delivery.Deliver();
  VITRINE_RETURN_IF_ERROR(engine.status());
  if (collector->ending != Ending::kFinished) {
    return absl::InternalError("the model gives no finite logits");
  }
  std::string line = "ok: " + loaded->served.architecture + ", " +
                     DescribeShares(loaded->model.weight_shares) + ", generated";
  for (const TokenId id : collector->ids) line += " " + std::to_string(id);
  std::puts(line.c_str());
  return absl::OkStatus();
}

absl::Status Run(const ServerOptions& options) {
  if (options.command == "attention-lab") {
    return RunAttentionLab(options.arguments, options.json);
  }
  const std::string& path = options.arguments.front();
  if (options.command == "tokenize") return Tokenize(path, options.parse_special);
  if (options.command == "check-model") return CheckModel(path, options);
  if (options.command == "bench-model") return BenchModel(options);
  if (options.command == "render-chat") return RenderChatCommand(path, options.now);
  return Inspect(path);
}

}  // namespace

int RunOfflineCommand(const ServerOptions& options) {
  const absl::Status status = Run(options);
  return status.ok() ? 0 : ReportError(status);
}

int ReportError(const absl::Status& status) {
  std::string line(status.message());
  for (char& c : line) {
    if (c == '\n') c = ' ';
  }
  std::fprintf(stderr, "vitrine-server: %s\n", line.c_str());
  return 1;
}

}  // namespace vitrine::server
