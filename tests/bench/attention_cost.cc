// usage: attention_cost MODEL.gguf [--sequences=8] [--prompt=256] [--tokens=128] [--rounds=9]
//        [--threads=0] [--cpu_time=0]
//
// What inspection costs, in one run: tokens per second of a full batch that decodes, where the
// server runs without --allow_inspection; with it and nobody asks ("off": every request is still
// kept for a replay); where one request asks for statistics and the top 16 of all heads; where all
// do. Engine, delivery and archive run as in the server, and the messages are made and serialised,
// but nothing is sent. A run counts from the moment when every sequence has its first token until
// the first one has its last. The four ways take turns, first and last in turn too, so that a
// machine whose speed changes treats them alike; printed are medians of the rounds and of the costs
// within a round, with the quartiles. --cpu_time=1 counts the processor time of all threads
// instead, for machines with other work; with --threads=1, as workers wait for each other in a
// loop.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend_factory.h"
#include "model/attention_reader.h"
#include "model/loader.h"
#include "server/answer_messages.h"
#include "server/attention_messages.h"
#include "server/engine.h"
#include "server/request_archive.h"
#include "server/validate.h"

namespace vitrine::server {
namespace {

struct Settings {
  const char* model = nullptr;
  int sequences = 8;
  int prompt = 256;
  int tokens = 128;
  int rounds = 9;
  int threads = 0;
  int cpu_time = 0;
};

// Processor time of all threads of this process.
class ProcessorClock final : public Clock {
 public:
  int64_t NowMicros() const override {
    timespec now = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
  }
};

// What a stream does for its client, up to the socket.
class SerializingSink final : public TokenSink {
 public:
  explicit SerializingSink(const Clock& clock) : clock_(clock) {}

  void OnPromptLogprobs(std::span<const PromptToken> /*prompt*/) override {}
  void OnToken(const AnswerToken& token) override {
    token_times_us.push_back(clock_.NowMicros());
    v1::GenerateEvent event;
    *event.mutable_tokens()->add_tokens() = MakeToken(token);
    bytes += event.SerializeAsString().size();
  }
  void OnAttention(TraceChunk chunk) override {
    v1::GenerateEvent event;
    *event.mutable_attention() = MakeAttentionChunk(chunk, "id", {});
    bytes += event.SerializeAsString().size();
  }
  void OnEnd(const AnswerEnd& /*end*/) override { ended.set_value(); }

  std::vector<int64_t> token_times_us;
  uint64_t bytes = 0;
  std::promise<void> ended;

 private:
  const Clock& clock_;
};

// Tokens per second from when all have begun until one ends.
double Rate(const std::vector<std::shared_ptr<SerializingSink>>& sinks) {
  int64_t begin_us = 0;
  int64_t end_us = kNever;
  for (const auto& sink : sinks) {
    begin_us = std::max(begin_us, sink->token_times_us.front());
    end_us = std::min(end_us, sink->token_times_us.back());
  }
  int64_t tokens = 0;
  for (const auto& sink : sinks) {
    tokens += std::ranges::count_if(sink->token_times_us, [&](int64_t time_us) {
      return time_us > begin_us && time_us <= end_us;
    });
  }
  return 1e6 * static_cast<double>(tokens) / static_cast<double>(end_us - begin_us);
}

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
               .max_reduced_pairs = AttentionReader::MaxReducedHeads(config),
               .num_layers = config.num_layers,
               .num_heads = config.num_heads};
    queue_ = std::make_unique<RequestQueue>(
        QueueLimits{.max_requests = 1000, .max_prompt_tokens = 1 << 20}, counters_);
    if (allows_inspection) {
      archive_ = std::make_unique<RequestArchive>(
          RequestArchive::Limits{.retention_us = 60'000'000, .max_bytes = 1 << 28}, clock_);
    }
    delivery_ = std::make_unique<Delivery>(*model_.tokenizer, counters_,
                                           DeliveryOptions{.archive = archive_.get()});
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
    queue_->Close(absl::UnavailableError("the bench ends"));
    engine_->Stop();
  }

  // Tokens per second of one full batch, `traced` of whose requests ask for their attention.
  double Run(int traced) {
    std::vector<std::shared_ptr<SerializingSink>> sinks;
    for (int i = 0; i < settings_.sequences; ++i) {
      const Clock& clock =
          settings_.cpu_time != 0 ? static_cast<const Clock&>(processor_clock_) : clock_;
      sinks.push_back(std::make_shared<SerializingSink>(clock));
      Send(i, i < traced, sinks.back());
    }
    for (const auto& sink : sinks) sink->ended.get_future().wait();
    return Rate(sinks);
  }

 private:
  void Send(int index, bool is_traced, std::shared_ptr<TokenSink> sink) {
    v1::GenerateRequest message;
    for (int t = 0; t < settings_.prompt; ++t) {
      message.mutable_token_ids()->add_ids(static_cast<uint32_t>(100 + (37 * index + t) % 5000));
    }
    message.mutable_sampling()->set_temperature(0);
    message.mutable_stop()->set_max_tokens(static_cast<uint32_t>(settings_.tokens));
    message.mutable_stop()->set_ignore_eos(true);
    if (is_traced) message.mutable_attention();
    auto request = ValidateGenerate(message, served_, limits_);
    if (!request.ok()) Fail(request.status());
    auto active =
        std::make_shared<ActiveRequest>(NewRequestId(), *std::move(request), std::move(sink));
    if (archive_ != nullptr) active->record = archive_->Open(active->id, active->request);
    if (const absl::Status status = queue_->Push(active, clock_.NowMicros()); !status.ok()) {
      Fail(status);
    }
  }

  [[noreturn]] static void Fail(const absl::Status& status) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::exit(1);
  }

  const Settings settings_;
  SteadyClock clock_;
  ProcessorClock processor_clock_;
  RequestCounters counters_;
  RequestLimits limits_;
  std::unique_ptr<Backend> backend_;
  LoadedModel model_;
  ServedModel served_;
  std::unique_ptr<RequestQueue> queue_;
  std::unique_ptr<RequestArchive> archive_;
  std::unique_ptr<Delivery> delivery_;
  std::unique_ptr<Engine> engine_;
};

double Quantile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

void Compare(const Settings& settings) {
  Bench without(settings, false);
  Bench with(settings, true);
  constexpr size_t kWays = 4;
  constexpr std::array<const char*, kWays> kNames = {"not allowed", "off: nobody asks",
                                                     "one request asks", "all ask"};
  const auto run = [&](size_t way) {
    constexpr int kOne = 1;
    if (way == 0) return without.Run(0);
    return with.Run(way == 1 ? 0 : way == 2 ? kOne : settings.sequences);
  };
  std::array<std::vector<double>, kWays> speeds;
  std::array<std::vector<double>, kWays> costs;
  for (size_t way = 0; way < kWays; ++way) run(way);
  for (int round = 0; round < settings.rounds; ++round) {
    std::array<double, kWays> speed;
    for (size_t i = 0; i < kWays; ++i) {
      const size_t way = round % 2 == 0 ? i : kWays - 1 - i;
      speed[way] = run(way);
    }
    for (size_t way = 0; way < kWays; ++way) {
      speeds[way].push_back(speed[way]);
      costs[way].push_back(100.0 * (1.0 - speed[way] / speed[0]));
    }
  }
  std::printf("%d sequences, prompt %d, %d tokens each, %d rounds\n", settings.sequences,
              settings.prompt, settings.tokens, settings.rounds);
  std::printf("%-20s %10s   %s\n", "", "tokens/s", "cost: median, quartiles");
  for (size_t way = 0; way < kWays; ++way) {
    std::printf("%-20s %10.1f   %5.1f %%  (%5.1f to %5.1f)\n", kNames[way],
                Quantile(speeds[way], 0.5), Quantile(costs[way], 0.5), Quantile(costs[way], 0.25),
                Quantile(costs[way], 0.75));
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
                         vitrine::server::ReadInt(argv[i], "--threads=", settings.threads) ||
                         vitrine::server::ReadInt(argv[i], "--cpu_time=", settings.cpu_time);
    if (!is_flag) settings.model = argv[i];
  }
  if (settings.model == nullptr) {
    std::fprintf(stderr,
                 "usage: attention_cost MODEL.gguf [--sequences=8] [--prompt=256] [--tokens=128] "
                 "[--rounds=9] [--threads=0] [--cpu_time=0]\n");
    return 2;
  }
  vitrine::server::Compare(settings);
  return 0;
}
