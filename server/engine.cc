#include "server/engine.h"

#include <algorithm>
#include <utility>

namespace vitrine::server {
namespace {

BlockPool MakePool(const EngineOptions& options, const Runner& runner) {
  const int num_blocks = runner.limits().num_blocks;
  return options.prefix_cache ? BlockPool(num_blocks, options.hash_key) : BlockPool(num_blocks);
}

}  // namespace

Engine::Engine(const EngineOptions& options, Runner& runner, RequestQueue& queue,
               Delivery& delivery, const Clock& clock)
    : options_(options),
      runner_(runner),
      queue_(queue),
      delivery_(delivery),
      clock_(clock),
      pool_(MakePool(options, runner)),
      scheduler_(options.scheduler, pool_) {
  VITRINE_CHECK_LE(options.scheduler.max_step_tokens, runner.limits().max_step_rows);
  VITRINE_CHECK_LE(options.scheduler.max_running_sequences, runner.limits().max_step_sequences);
  PublishLoad();
}

Engine::~Engine() { Stop(); }

void Engine::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Engine::Stop() {
  stopping_ = true;
  queue_.Wake();
  if (thread_.joinable()) thread_.join();
}

void Engine::Run() {
  for (;;) {
    // Read before the turn: the queue is closed by then, so that turn takes its last request.
    const bool is_last = stopping_;
    if (Turn()) continue;
    if (is_last) return;
    queue_.Wait();
  }
}

bool Engine::Turn() {
  const int64_t began_us = clock_.NowMicros();
  turn_began_us_ = began_us;
  TakeArrivals();
  DropLeavers(began_us);
  const Batch& batch = scheduler_.Next();
  const bool has_work = batch.rows() > 0;
  if (has_work) {
    NoteStarts(began_us);
    PublishLoad();
    next_tokens_.resize(batch.sampling.size());
    runner_.Step(batch, next_tokens_);
    const int64_t done_us = clock_.NowMicros();
    for (const StepResult& result : scheduler_.Complete(next_tokens_)) NoteResult(result, done_us);
    ++steps_;
  }
  PublishLoad();
  if (!has_work) turn_began_us_ = kNever;
  // After the load is published: who has seen an answer end also sees its blocks free.
  delivery_.Post(events_);
  return has_work;
}

void Engine::TakeArrivals() {
  queue_.Take(arrivals_);
  for (auto& request : arrivals_) {
    const PrefixChain root = pool_.RootChain(request->request.cache_salt);
    scheduler_.Admit(std::make_unique<Sequence>(std::move(request), root, next_arrival_++));
  }
  arrivals_.clear();
}

void Engine::DropLeavers(int64_t now_us) {
  scheduler_.RemoveIf([&](Sequence& sequence) {
    const std::optional<RequestEnd> end = WhyLeave(sequence, now_us);
    if (!end.has_value()) return false;
    if (sequence.first_step_us < 0) queue_.Leave(*sequence.owner, /*started=*/false, now_us);
    sequence.owner->end = *end;
    PostEnd(sequence, now_us);
    return true;
  });
}

std::optional<RequestEnd> Engine::WhyLeave(const Sequence& sequence, int64_t now_us) const {
  const ActiveRequest& owner = *sequence.owner;
  if (owner.cancelled) return RequestEnd{.ending = Ending::kCancelled};
  if (owner.text_stop) return RequestEnd{.reason = FinishReason::kStopString};
  if (owner.request.deadline_us <= now_us) return RequestEnd{.ending = Ending::kExpired};
  if (owner.request.time_limit_us <= now_us) return RequestEnd{.reason = FinishReason::kTimeLimit};
  if (stopping_) return RequestEnd{.ending = Ending::kShutDown, .reason = FinishReason::kShutdown};
  return std::nullopt;
}

void Engine::NoteStarts(int64_t now_us) {
  for (Sequence* sequence : scheduler_.step()) {
    const int prompt_rows =
        std::min(sequence->planned, std::max(0, sequence->prompt_length() - sequence->computed));
    prefilled_.Add(now_us, prompt_rows);
    if (sequence->first_step_us >= 0) continue;
    sequence->first_step_us = now_us;
    queue_.Leave(*sequence->owner, /*started=*/true, now_us);
  }
}

void Engine::NoteResult(const StepResult& result, int64_t now_us) {
  Sequence& sequence = *result.sequence;
  if (result.token >= 0) {
    if (sequence.first_token_us < 0) sequence.first_token_us = now_us;
    sequence.last_token_us = now_us;
    generated_.Add(now_us, 1);
    events_.push_back({.request = sequence.owner, .token = result.token});
  }
  if (result.has_ended) PostEnd(sequence, now_us);
}

void Engine::PostEnd(Sequence& sequence, int64_t now_us) {
  Timeline& timeline = sequence.timeline;
  const int64_t arrival_us = sequence.request().arrival_us;
  const bool has_started = sequence.first_step_us >= 0;
  const bool has_token = sequence.first_token_us >= 0;
  timeline.queue_us = (has_started ? sequence.first_step_us : now_us) - arrival_us;
  if (has_started) {
    timeline.prefill_us = (has_token ? sequence.first_token_us : now_us) - sequence.first_step_us;
  }
  if (has_token) timeline.decode_us = sequence.last_token_us - sequence.first_token_us;
  sequence.owner->end.timeline = timeline;
  events_.push_back({.request = sequence.owner, .is_end = true});
}

EngineLoad Engine::load() const {
  std::lock_guard lock(load_mutex_);
  return load_;
}

int64_t Engine::BusyMicros() const {
  const int64_t began_us = turn_began_us_;
  return began_us == kNever ? 0 : clock_.NowMicros() - began_us;
}

void Engine::PublishLoad() {
  std::lock_guard lock(load_mutex_);
  load_ = {.waiting_sequences = scheduler_.waiting(),
           .running_sequences = scheduler_.running(),
           .blocks_free = pool_.free(),
           .blocks_owned = pool_.owned(),
           .blocks_cached = pool_.cached(),
           .blocks_total = pool_.num_blocks(),
           .steps = steps_,
           .preemptions = scheduler_.preemptions(),
           .oldest_arrival_us = scheduler_.OldestArrivalMicros(),
           .generated = generated_,
           .prefilled = prefilled_};
}

}  // namespace vitrine::server
