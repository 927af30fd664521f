#include "tests/simulation/simulation.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "server/engine.h"
#include "server/validate.h"
#include "tests/simulation/simulated_client.h"

namespace vitrine::server {
namespace {

class VirtualClock final : public Clock {
 public:
  int64_t NowMicros() const override { return now_us; }
  int64_t now_us = 1'000'000;
};

// A request in the server, from the world's point of view.
struct Visit {
  std::shared_ptr<ActiveRequest> active;
  std::shared_ptr<SimulatedClient> client;
  int reads_every = 1;       // Turns between two reads; 0: reads nothing until its end.
  int turns = 0;             // Since it arrived.
  int cancelled_turns = -1;  // Since its cancel; -1: not cancelled.
};

class World {
 public:
  explicit World(uint64_t seed);
  SimulationReport Run();

 private:
  uint64_t Below(uint64_t limit) { return random_() % limit; }
  bool Chance(int percent) { return Below(100) < static_cast<uint64_t>(percent); }
  void Fire(FaultPoint point) { ++report_.fired[static_cast<size_t>(point)]; }
  void Violate(const std::string& what) {
    if (report_.violation.empty()) report_.violation = what;
  }

  void AddSamplingOptions(v1::GenerateRequest& message);
  v1::GenerateRequest MakeMessage();
  void Arrive();
  void CountRefusal(const absl::Status& status);
  void Disturb();
  void Cancel(Visit& visit);
  void Turn();
  void ReadAndReap(bool is_over);
  void CountEnd(const Visit& visit);
  void CountFinish(const Visit& visit, const ChoiceEnd& end, bool has_started);
  void CheckInvariants();
  void ShutDown();

  std::mt19937_64 random_;
  SimulationReport report_;
  FakeTokenizer tokenizer_;
  VirtualClock clock_;
  RequestCounters counters_;
  ServedModel model_;
  RequestLimits limits_;
  EngineOptions options_;
  QueueLimits queue_limits_;
  std::unique_ptr<FakeRunner> runner_;
  std::unique_ptr<RequestQueue> queue_;
  std::unique_ptr<Delivery> delivery_;
  std::unique_ptr<Engine> engine_;
  std::vector<Visit> visits_;
  std::map<uint64_t, int64_t> broken_position_;  // Of the seed: where logits are not finite.
  uint64_t next_seed_ = 1;
  int lag_ = 0;  // Turns left without delivery.
  bool is_draining_ = false;
  bool cancels_during_step_ = false;
  uint64_t done_ = 0;
};

World::World(uint64_t seed) : random_(seed) {
  const int running = 1 + static_cast<int>(Below(8));
  const int chunk = 1 + static_cast<int>(Below(24));
  const int blocks = 4 + static_cast<int>(Below(40));
  const int context = 32 + static_cast<int>(Below(200));
  options_ = {
      .scheduler = {.max_running_sequences = running,
                    .max_step_tokens = std::max(running, chunk) + static_cast<int>(Below(16)),
                    .prefill_chunk_tokens = chunk,
                    .optimistic_admission = Chance(60),
                    .bypass_limit = 1 + static_cast<int>(Below(8))},
      .prefix_cache = Chance(75),
      .hash_key = {random_(), random_()}};
  limits_.max_running_sequences = running;
  queue_limits_ = {.max_requests = 1 + static_cast<int>(Below(12)),
                   .max_prompt_tokens = 64 + static_cast<int64_t>(Below(600))};
  model_ = {.name = "fake",
            .tokenizer = &tokenizer_,
            .vocabulary = tokenizer_.vocabulary(),
            .context_length = context,
            .kv_tokens = int64_t{blocks} * kKvBlockTokens,
            .longest_token = LongestToken(tokenizer_),
            .inspection_bytes = 1 << 20,
            .num_layers = 1,
            .num_heads = 2};
  options_.scheduler.max_traced_rows = running + static_cast<int>(Below(8));
  options_.trace_buffer_bytes = 64 + static_cast<int64_t>(Below(4000));
  runner_ = std::make_unique<FakeRunner>(
      RunnerLimits{.max_step_rows = options_.scheduler.max_step_tokens,
                   .max_step_sequences = running,
                   .num_blocks = blocks,
                   .context_length = context,
                   .vocabulary = tokenizer_.vocabulary(),
                   .max_traced_rows = options_.scheduler.max_traced_rows,
                   .num_layers = model_.num_layers,
                   .num_heads = model_.num_heads});
  runner_->before_step = [this](const Batch& batch) {
    clock_.now_us += 100 + 10 * batch.rows();
    if (Chance(2)) {
      clock_.now_us += 50'000;
      Fire(FaultPoint::kSlowStep);
    }
    if (engine_->pool().available() == 0) Fire(FaultPoint::kPoolExhausted);
    if (cancels_during_step_ && !visits_.empty()) {
      Visit& visit = visits_[Below(visits_.size())];
      if (visit.cancelled_turns < 0 && !visit.client->has_end()) {
        Fire(FaultPoint::kCancelDuringStep);
        visit.active->cancelled = true;
        visit.client->is_dead = true;
        visit.cancelled_turns = 0;
      }
    }
  };
  runner_->is_broken = [this](const SampleRow& row) {
    const auto broken = broken_position_.find(row.seed);
    return broken != broken_position_.end() && row.position >= broken->second;
  };
  queue_ = std::make_unique<RequestQueue>(queue_limits_, counters_);
  delivery_ = std::make_unique<Delivery>(tokenizer_, counters_, DeliveryOptions{});
  engine_ = std::make_unique<Engine>(options_, *runner_, *queue_, *delivery_, clock_);
}

void World::AddSamplingOptions(v1::GenerateRequest& message) {
  auto& sampling = *message.mutable_sampling();
  const auto token = [this] { return static_cast<uint32_t>(Below(270)); };
  if (Chance(20)) {
    sampling.set_repetition_penalty(Chance(50) ? 1.0f : 1.25f);
    sampling.set_presence_penalty(0.5f * static_cast<float>(Below(4)));
    sampling.set_frequency_penalty(0.25f * static_cast<float>(Below(4)));
    if (Chance(50)) sampling.set_penalty_window(static_cast<int32_t>(1 + Below(40)));
  }
  if (Chance(10)) {
    v1::LogitBias& bias = *sampling.add_logit_bias();
    bias.set_token_id(token());
    bias.set_bias(1.5f);
  }
  if (Chance(10)) {
    for (int i = 0; i < 40; ++i) sampling.add_allowed_token_ids(token());
  }
  if (Chance(10)) {
    for (int i = 0; i < 5; ++i) sampling.add_banned_token_ids(token());
  }
  if (Chance(20)) message.mutable_stop()->set_min_tokens(static_cast<uint32_t>(Below(8)));
  auto& output = *message.mutable_output();
  if (Chance(30)) {
    output.set_logprobs(static_cast<uint32_t>(Below(4)));
    if (Chance(40)) output.set_logprobs_mode(v1::LOGPROBS_MODE_PROCESSED);
  }
  if (Chance(20)) output.set_prompt_logprobs(static_cast<uint32_t>(Below(3)));
}

v1::GenerateRequest World::MakeMessage() {
  v1::GenerateRequest message;
  // Few different prompts, so that prefixes are shared and hashes meet.
  const std::string stem(1 + Below(static_cast<uint64_t>(model_.context_length) * 3 / 4),
                         static_cast<char>('a' + Below(3)));
  message.set_text(stem + (Chance(50) ? std::to_string(Below(4)) : ""));
  auto& sampling = *message.mutable_sampling();
  sampling.set_temperature(Chance(50) ? 0.0f : 1.0f);
  sampling.set_seed(next_seed_++);
  auto& stop = *message.mutable_stop();
  if (!Chance(10)) stop.set_max_tokens(static_cast<uint32_t>(Chance(8) ? 0 : Below(60)));
  stop.set_ignore_eos(Chance(60));
  if (Chance(30)) {
    for (const char* text : {"st", "stop now", "\x9F\x98", "t", "\xB8"}) {
      if (Chance(40)) stop.add_stop_strings(text);
    }
    // Complete matches that may still grow.
    for (uint64_t pairs = Below(5); pairs > 0; --pairs) {
      const std::string byte(1, static_cast<char>(Below(256)));
      stop.add_stop_strings(byte);
      stop.add_stop_strings(byte + "\x98");
    }
    stop.set_include_stop_string(Chance(30));
  }
  if (Chance(20)) stop.add_stop_token_ids(static_cast<uint32_t>(Below(8)));
  AddSamplingOptions(message);
  if (Chance(10)) stop.mutable_time_limit()->set_nanos(static_cast<int32_t>(1 + Below(30'000'000)));
  message.set_priority(static_cast<int32_t>(Below(3)) - 1);
  if (Chance(15)) {
    message.mutable_attention()->add_queries(Chance(50) ? v1::QUERY_SET_ALL
                                                        : v1::QUERY_SET_GENERATED);
    message.mutable_attention()->add_outputs()->mutable_stats();
  }
  if (Chance(20)) message.set_cache_salt("tenant");
  if (Chance(20)) message.mutable_output()->set_n(1 + static_cast<uint32_t>(Below(4)));
  if (Chance(3)) sampling.set_top_p(0);
  if (Chance(3)) message.set_text("\xFF");
  return message;
}

void World::CountRefusal(const absl::Status& status) {
  if (absl::IsInvalidArgument(status)) {
    Fire(FaultPoint::kInvalidRequest);
  } else if (absl::IsUnavailable(status)) {
    Fire(FaultPoint::kRefusedWhileDraining);
  } else if (!RetryAfterMicros(status)) {
    const bool is_places = std::string(status.message()).find("output.n") == 0;
    Fire(is_places ? FaultPoint::kTooManyChoices : FaultPoint::kNeverFits);
  } else if (std::string(status.message()).find("deadline") != std::string::npos) {
    Fire(FaultPoint::kExpectedWaitTooLong);
  } else {
    Fire(FaultPoint::kQueueFull);
  }
}

void World::Arrive() {
  ++report_.requests;
  const v1::GenerateRequest message = MakeMessage();
  absl::StatusOr<GenerationRequest> request = ValidateGenerate(message, model_, limits_);
  if (!request.ok()) return CountRefusal(request.status());
  if (Chance(20)) request->caller = "alice";
  request->arrival_us = clock_.now_us;
  if (Chance(15)) request->deadline_us = clock_.now_us + static_cast<int64_t>(Below(40'000));
  if (request->time_limit_us != kNever) request->time_limit_us += clock_.now_us;
  if (Chance(5)) {
    broken_position_[request->sampling.seed] =
        static_cast<int64_t>(request->prompt.size() + Below(12));
  }
  Visit visit;
  visit.client = std::make_shared<SimulatedClient>(tokenizer_, *request);
  visit.active = std::make_shared<ActiveRequest>(std::to_string(report_.requests),
                                                 *std::move(request), visit.client);
  visit.client->Accept(*visit.active);
  if (const absl::Status status = queue_->Push(visit.active, clock_.now_us); !status.ok()) {
    return CountRefusal(status);
  }
  visit.reads_every = Chance(70) ? 1 : static_cast<int>(Below(30));
  if (visit.active->request.trace != nullptr) {
    Fire(FaultPoint::kTraced);
    // Who reads nothing waits for its own trace for ever.
    visit.reads_every = std::max(1, visit.reads_every);
  }
  if (visit.reads_every == 0) Fire(FaultPoint::kDeadReader);
  if (Chance(5)) {
    Fire(FaultPoint::kCancelBeforeFirstTurn);
    Cancel(visit);
  }
  visits_.push_back(std::move(visit));
}

void World::Cancel(Visit& visit) {
  visit.active->cancelled = true;
  visit.client->is_dead = true;
  visit.cancelled_turns = 0;
}

void World::Disturb() {
  cancels_during_step_ = Chance(2);
  if (Chance(3)) {
    clock_.now_us += 5'000;
  } else if (Chance(3)) {
    Fire(FaultPoint::kClockStandsStill);
  }
  if (lag_ == 0 && Chance(5)) {
    lag_ = 1 + static_cast<int>(Below(12));
    Fire(FaultPoint::kDeliveryLag);
  }
  if (visits_.empty() || !Chance(10)) return;
  Visit& visit = visits_[Below(visits_.size())];
  if (visit.cancelled_turns >= 0 || visit.turns == 0) return;
  const EngineLoad load = engine_->load();
  if (visit.client->has_end()) {
    Fire(FaultPoint::kCancelAfterEnd);
  } else if (visit.client->tokens_read() > 0) {
    Fire(FaultPoint::kCancelDecode);
  } else if (load.waiting_sequences == 0) {
    Fire(FaultPoint::kCancelPrefill);
  } else {
    Fire(FaultPoint::kCancelWaiting);
  }
  Cancel(visit);
}

void World::Turn() {
  const int64_t preemptions = engine_->load().preemptions;
  const bool has_worked = engine_->Turn();
  const EngineLoad load = engine_->load();
  report_.fired[static_cast<size_t>(FaultPoint::kPreemption)] += load.preemptions - preemptions;
  // Invariant 10: whatever is runnable runs.
  const auto is_paused = [](const Visit& visit) {
    const TraceCredit* credit = visit.active->trace_credit.get();
    return credit != nullptr && credit->is_full() && !visit.client->has_end();
  };
  if (!has_worked && load.waiting_sequences + load.running_sequences > 0) {
    if (std::ranges::none_of(visits_, is_paused)) Violate("work waits and nothing runs");
    Fire(FaultPoint::kPausedByItsReader);
  }
  const bool delivers = lag_ == 0;
  if (delivers) {
    delivery_->Deliver();
  } else {
    --lag_;
  }
  for (Visit& visit : visits_) {
    ++visit.turns;
    if (visit.cancelled_turns < 0) continue;
    // Invariant 12: free within one step, told as soon as delivery runs.
    if (++visit.cancelled_turns >= 2 && delivers && !visit.client->has_end()) {
      Violate("a cancelled request lives on");
    }
  }
}

void World::CountEnd(const Visit& visit) {
  const AnswerEnd& end = *visit.client->end();
  const bool has_started = end.timeline.steps > 0;
  switch (end.ending) {
    case Ending::kFinished:
      break;
    case Ending::kCancelled:
      if (visit.cancelled_turns < 0) Violate("cancelled without a cancel");
      return;
    case Ending::kExpired:
      if (visit.active->request.deadline_us > clock_.now_us) Violate("expired too early");
      return Fire(has_started ? FaultPoint::kDeadlineRunning : FaultPoint::kDeadlineWaiting);
    case Ending::kShutDown:
      if (!is_draining_) Violate("shut down while serving");
      return Fire(has_started ? FaultPoint::kShutDownRunning : FaultPoint::kShutDownWaiting);
    case Ending::kDeviceFailed:
      Violate("a device that cannot fail has failed");
      return;
    case Ending::kFailed:
      if (!broken_position_.contains(visit.active->request.sampling.seed)) {
        Violate("failed for no reason");
      }
      return Fire(end.completion_tokens == 0 ? FaultPoint::kNonFiniteFirstToken
                                             : FaultPoint::kNonFiniteLaterToken);
  }
  if (end.timeline.cached_prompt_tokens > 0) Fire(FaultPoint::kPrefixHit);
  if (end.choices.size() > 1) Fire(FaultPoint::kSeveralChoices);
  for (const ChoiceEnd& choice : end.choices) CountFinish(visit, choice, has_started);
}

void World::CountFinish(const Visit& visit, const ChoiceEnd& end, bool has_started) {
  switch (end.reason) {
    case FinishReason::kEos:
      return Fire(FaultPoint::kEos);
    case FinishReason::kStopToken:
      return Fire(FaultPoint::kStopToken);
    case FinishReason::kStopString:
      return Fire((visit.active->text_stops & (1u << end.choice)) != 0
                      ? FaultPoint::kTextStopWhileAhead
                      : FaultPoint::kStopStringAtTheEnd);
    case FinishReason::kContextFull:
      return Fire(FaultPoint::kContextFull);
    case FinishReason::kTimeLimit:
      return Fire(has_started ? FaultPoint::kTimeLimitRunning : FaultPoint::kTimeLimitWaiting);
    case FinishReason::kMaxTokens:
      if (end.completion_tokens == 0) Fire(FaultPoint::kPrefillOnly);
      return;
    case FinishReason::kUnspecified:
    case FinishReason::kShutdown:
      Violate("a wrong finish reason");
  }
}

void World::ReadAndReap(bool is_over) {
  std::erase_if(visits_, [&](Visit& visit) {
    SimulatedClient& client = *visit.client;
    const bool reads = visit.reads_every > 0 && visit.turns % visit.reads_every == 0;
    if (reads) client.ReadOne();
    if (client.has_choice_left()) Fire(FaultPoint::kChoiceEndsBeforeAnother);
    const bool may_leave = is_over || Chance(20);
    if (client.has_end() && may_leave) {
      while (client.has_unread()) client.ReadOne();
      client.CheckComplete();
      CountEnd(visit);
      if (client.largest_message > 1) Fire(FaultPoint::kSlowReader);
      report_.tokens += client.tokens_read();
      ++done_;
    } else if (is_over) {
      Violate("a request without an end");
    }
    if (!client.failure().empty()) {
      Violate(client.failure() + " (request " + visit.active->id + ")");
    }
    return client.has_end() && may_leave;
  });
}

void World::CheckInvariants() {
  const BlockPool& pool = engine_->pool();
  if (pool.free() + pool.owned() + pool.cached() != pool.num_blocks()) {
    Violate("blocks: free + owned + cached != total");
  }
  const EngineLoad load = engine_->load();
  if (load.running_sequences == 0 && pool.owned() != 0) Violate("idle, and blocks are owned");
  // Invariant 1: delivery has counted the end of exactly those whose client knows it.
  uint64_t live = 0;
  for (const Visit& visit : visits_) live += visit.client->has_end() ? 0 : 1;
  if (counters_.live() != live) Violate("accepted != ended + live");
  if (queue_->load().requests > queue_limits_.max_requests) Violate("the queue is over its limit");
  if (queue_->load().prompt_tokens > queue_limits_.max_prompt_tokens) {
    Violate("the queue holds too many tokens");
  }
  // Invariant 10: bounded waiting. A request takes at most some hundred steps, and there are at
  // most some dozen before it.
  for (const Visit& visit : visits_) {
    if (visit.turns > 50'000 && !visit.client->has_end()) Violate("a request starves");
  }
}

void World::ShutDown() {
  is_draining_ = true;
  queue_->Close(absl::UnavailableError("the simulation ends"));
  Arrive();
  const bool stops_now = Chance(50);
  if (stops_now) engine_->Stop();
  lag_ = 0;
  cancels_during_step_ = false;
  // Stop without a thread: the turns that the thread would make.
  for (int turn = 0; turn < 100'000; ++turn) {
    Turn();
    for (Visit& visit : visits_) visit.client->ReadOne();
    CheckInvariants();
    if (!report_.violation.empty() || counters_.live() == 0) break;
  }
  ReadAndReap(/*is_over=*/true);
  CheckInvariants();
  if (engine_->pool().owned() != 0) Violate("blocks are owned at the end");
  if (queue_->load().requests != 0 || queue_->load().prompt_tokens != 0) {
    Violate("the queue counts requests that are gone");
  }
}

SimulationReport World::Run() {
  const int turns = 150 + static_cast<int>(Below(250));
  const int arrivals = 5 + static_cast<int>(Below(40));  // Percent of turns.
  for (int turn = 0; turn < turns && report_.violation.empty(); ++turn) {
    while (Chance(arrivals)) Arrive();
    Disturb();
    Turn();
    ReadAndReap(/*is_over=*/false);
    CheckInvariants();
  }
  if (report_.violation.empty()) ShutDown();
  report_.steps = runner_->steps;
  report_.simulated_us = clock_.now_us;
  return report_;
}

}  // namespace

const char* NameOf(FaultPoint point) {
  switch (point) {
#define VITRINE_NAME(name) \
  case FaultPoint::name:   \
    return #name
    VITRINE_NAME(kInvalidRequest);
    VITRINE_NAME(kNeverFits);
    VITRINE_NAME(kQueueFull);
    VITRINE_NAME(kExpectedWaitTooLong);
    VITRINE_NAME(kCancelBeforeFirstTurn);
    VITRINE_NAME(kCancelWaiting);
    VITRINE_NAME(kCancelPrefill);
    VITRINE_NAME(kCancelDecode);
    VITRINE_NAME(kCancelDuringStep);
    VITRINE_NAME(kCancelAfterEnd);
    VITRINE_NAME(kDeadlineWaiting);
    VITRINE_NAME(kDeadlineRunning);
    VITRINE_NAME(kTimeLimitWaiting);
    VITRINE_NAME(kTimeLimitRunning);
    VITRINE_NAME(kNonFiniteFirstToken);
    VITRINE_NAME(kNonFiniteLaterToken);
    VITRINE_NAME(kSlowReader);
    VITRINE_NAME(kDeadReader);
    VITRINE_NAME(kDeliveryLag);
    VITRINE_NAME(kTextStopWhileAhead);
    VITRINE_NAME(kStopStringAtTheEnd);
    VITRINE_NAME(kEos);
    VITRINE_NAME(kStopToken);
    VITRINE_NAME(kPrefillOnly);
    VITRINE_NAME(kContextFull);
    VITRINE_NAME(kPreemption);
    VITRINE_NAME(kPrefixHit);
    VITRINE_NAME(kTraced);
    VITRINE_NAME(kPausedByItsReader);
    VITRINE_NAME(kSeveralChoices);
    VITRINE_NAME(kChoiceEndsBeforeAnother);
    VITRINE_NAME(kTooManyChoices);
    VITRINE_NAME(kPoolExhausted);
    VITRINE_NAME(kSlowStep);
    VITRINE_NAME(kClockStandsStill);
    VITRINE_NAME(kShutDownRunning);
    VITRINE_NAME(kShutDownWaiting);
    VITRINE_NAME(kRefusedWhileDraining);
#undef VITRINE_NAME
    case FaultPoint::kCount:
      break;
  }
  return "?";
}

SimulationReport Simulate(uint64_t seed) { return World(seed).Run(); }

}  // namespace vitrine::server
