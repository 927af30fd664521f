// usage: attention_cost MODEL.gguf [--sequences=8] [--prompt=128] [--tokens=64] [--rounds=5]
//        [--threads=0]
//
// What inspection costs, in one run: tokens per second of a full batch with inspection off, allowed
// but not asked for, asked for by one request, and by all (statistics and top 16, all heads). The
// engine and delivery run as in the server, without gRPC. Ways take turns, so that a machine whose
// speed changes treats them alike; printed are medians over the rounds and of the ratios within
// them.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend_factory.h"
#include "model/loader.h"
#include "server/engine.h"
#include "server/validate.h"

namespace vitrine::server {
namespace {

struct Settings {
  const char* model = nullptr;
  int sequences = 8;
  int prompt = 128;
  int tokens = 64;
  int rounds = 5;
  int threads = 0;
};

class CountingSink final : public TokenSink {
 public:
  void OnPromptLogprobs(std::span<const PromptToken> /*prompt*/) override {}
  void OnToken(const AnswerToken& /*token*/) override {}
  void OnAttention(TraceChunk chunk) override { bytes += chunk.bytes(); }
  void OnEnd(const AnswerEnd& /*end*/) override { ended.set_value(); }

  uint64_t bytes = 0;
  std::promise<void> ended;
};

// A model that may, or may not, be looked at, with its engine.
class Bench {
 public:
  Bench(const Settings& settings, bool allows_inspection) : settings_(settings) {
    const int traced = allows_inspection ? settings.sequences + 64 : 0;
    backend_ = *CreateBackend("cpu", {.threads = settings.threads});
    LoadOptions options;
    options.context_length = settings.prompt + settings.tokens + 16;
    options.max_step_rows = 256;
    options.max_step_sequences = settings.sequences;
    options.max_traced_rows = traced;
    model_ = *LoadModel(settings.model, *backend_, options);
    const ModelConfig& config = model_.config;
    served_ = {.name = "model",
               .tokenizer = model_.tokenizer.get(),
               .vocabulary = model_.tokenizer->vocabulary(),
               .context_length = model_.runner->limits().context_length,
               .kv_tokens = int64_t{model_.runner->limits().num_blocks} * kKvBlockTokens,
               .longest_token = LongestToken(*model_.tokenizer),
               .inspection_bytes = allows_inspection ? int64_t{1} << 34 : 0,
               .num_layers = config.num_layers,
               .num_heads = config.num_heads};
    queue_ = std::make_unique<RequestQueue>(
        QueueLimits{.max_requests = 1000, .max_prompt_tokens = 1 << 20}, counters_);
    delivery_ = std::make_unique<Delivery>(*model_.tokenizer, counters_, DeliveryOptions{});
    engine_ = std::make_unique<Engine>(
        EngineOptions{.scheduler = {.max_running_sequences = settings.sequences,
                                    .max_step_tokens = 256,
                                    .prefill_chunk_tokens = 256,
                                    .max_traced_rows = traced},
                      .prefix_cache = false},
        *model_.runner, *queue_, *delivery_, clock_);
    delivery_->Start();
    engine_->Start();
  }
  ~Bench() {
    queue_->Close();
    engine_->Stop();
  }

  // Tokens per second of one full batch, `traced` of whose requests ask for their attention.
  double Run(int traced) {
    std::vector<std::shared_ptr<CountingSink>> sinks;
    const auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < settings_.sequences; ++i) {
      v1::GenerateRequest message;
      for (int t = 0; t < settings_.prompt; ++t) {
        message.mutable_token_ids()->add_ids(static_cast<uint32_t>(100 + (37 * i + t) % 5000));
      }
      message.mutable_sampling()->set_temperature(0);
      message.mutable_stop()->set_max_tokens(static_cast<uint32_t>(settings_.tokens));
      message.mutable_stop()->set_ignore_eos(true);
      if (i < traced) message.mutable_attention();
      auto request = ValidateGenerate(message, served_, limits_);
      if (!request.ok()) {
        std::fprintf(stderr, "%s\n", request.status().ToString().c_str());
        std::exit(1);
      }
      sinks.push_back(std::make_shared<CountingSink>());
      (void)queue_->Push(
          std::make_shared<ActiveRequest>(std::to_string(i), *std::move(request), sinks.back()),
          clock_.NowMicros());
    }
    for (const auto& sink : sinks) sink->ended.get_future().wait();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
    return settings_.sequences * settings_.tokens / seconds.count();
  }

 private:
  const Settings settings_;
  SteadyClock clock_;
  RequestCounters counters_;
  RequestLimits limits_;
  std::unique_ptr<Backend> backend_;
  LoadedModel model_;
  ServedModel served_;
  std::unique_ptr<RequestQueue> queue_;
  std::unique_ptr<Delivery> delivery_;
  std::unique_ptr<Engine> engine_;
};

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void Compare(const Settings& settings) {
  Bench off(settings, false);
  Bench allowed(settings, true);
  constexpr std::array<const char*, 4> kNames = {"off", "allowed, not asked", "one request",
                                                 "all requests"};
  std::array<std::vector<double>, 4> speeds;
  std::array<std::vector<double>, 4> costs;
  off.Run(0);
  allowed.Run(settings.sequences);
  for (int round = 0; round < settings.rounds; ++round) {
    const std::array<double, 4> speed = {off.Run(0), allowed.Run(0), allowed.Run(1),
                                         allowed.Run(settings.sequences)};
    for (size_t way = 0; way < speed.size(); ++way) {
      speeds[way].push_back(speed[way]);
      costs[way].push_back(100.0 * (1.0 - speed[way] / speed[0]));
    }
  }
  std::printf("%d sequences, prompt %d, %d tokens each, %d rounds\n", settings.sequences,
              settings.prompt, settings.tokens, settings.rounds);
  for (size_t way = 0; way < kNames.size(); ++way) {
    std::printf("%-20s %8.1f tokens/s   cost %5.1f %%\n", kNames[way], Median(speeds[way]),
                Median(costs[way]));
  }
}

bool ReadInt(const char* argument, const char* name, int& value) {
  const size_t length = std::strlen(name);
  if (std::strncmp(argument, name, length) != 0) return false;
  value = std::atoi(argument + length);
  return true;
}

}  // namespace
}  // namespace vitrine::server

int main(int argc, char** argv) {
  vitrine::server::Settings settings;
  for (int i = 1; i < argc; ++i) {
    const bool is_flag = vitrine::server::ReadInt(argv[i], "--sequences=", settings.sequences) ||
                         vitrine::server::ReadInt(argv[i], "--prompt=", settings.prompt) ||
                         vitrine::server::ReadInt(argv[i], "--tokens=", settings.tokens) ||
                         vitrine::server::ReadInt(argv[i], "--rounds=", settings.rounds) ||
                         vitrine::server::ReadInt(argv[i], "--threads=", settings.threads);
    if (!is_flag) settings.model = argv[i];
  }
  if (settings.model == nullptr) {
    std::fprintf(stderr, "usage: attention_cost MODEL.gguf [--sequences=8] [--prompt=128]\n");
    return 2;
  }
  vitrine::server::Compare(settings);
  return 0;
}
