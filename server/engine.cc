#include "server/engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/request_record.h"
#include "server/request_trace.h"

namespace vitrine::server {
namespace {

constexpr int64_t kPausedWaitMicros = 20'000;

size_t SequenceOf(const Batch& batch, const AttentionPiece& piece) {
  return static_cast<size_t>(batch.traces[static_cast<size_t>(piece.trace)].sequence);
}

BlockPool MakePool(const EngineOptions& options, const Runner& runner) {
  const int num_blocks = runner.limits().num_blocks;
  return options.prefix_cache ? BlockPool(num_blocks, options.hash_key) : BlockPool(num_blocks);
}

SchedulerOptions SizedFor(const RunnerLimits& limits, SchedulerOptions options) {
  options.max_sequence_blocks = BlocksFor(limits.context_length);
  options.runs_ahead = limits.runs_ahead;
  return options;
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
      scheduler_(SizedFor(runner.limits(), options.scheduler), pool_) {
  VITRINE_CHECK_LE(options.scheduler.max_step_tokens, runner.limits().max_step_rows);
  VITRINE_CHECK_LE(options.scheduler.max_running_sequences, runner.limits().max_step_sequences);
  VITRINE_CHECK_LE(options.scheduler.max_traced_rows, runner.limits().max_traced_rows);
  // What a step may bring, so that it allocates nothing: a token of each sequence, and its end.
  const auto sequences = static_cast<size_t>(options.scheduler.max_running_sequences);
  next_tokens_.reserve(sequences);
  events_.reserve(2 * sequences);
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
    // Requests that wait for the readers of their traces still have deadlines.
    queue_.Wait(scheduler_.is_empty() ? kNever : kPausedWaitMicros);
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
    if (!runner_.status().ok()) {
      NoteFailure();
    } else if (!batch.traces.empty() || !batch.certified_rows.empty()) {
      ReadTraces(batch);
    }
    const int64_t done_us = clock_.NowMicros();
    for (const Sequence* sequence : scheduler_.step()) {
      int64_t& longest_us = sequence->owner->timeline.longest_step_us;
      longest_us = std::max(longest_us, done_us - began_us);
    }
    for (const StepResult& result :
         scheduler_.Complete(next_tokens_, runner_.logprobs(), runner_.prompt_logprobs())) {
      NoteResult(result, done_us);
    }
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
    if (request->request.trace != nullptr) {
      request->trace_credit = std::make_shared<TraceCredit>(options_.trace_buffer_bytes,
                                                            [&queue = queue_] { queue.Wake(); });
    }
    // A name holds no NUL, so no two pairs of caller and salt meet. Callers share nothing: a hit is
    // faster than a miss, and so tells what another one has asked.
    const PrefixChain root = pool_.RootChain(absl::StrCat(
        request->request.caller, absl::string_view("\0", 1), request->request.cache_salt));
    scheduler_.Admit(Sequence::ForRequest(request, root, next_arrival_));
    next_arrival_ += static_cast<uint64_t>(request->request.num_choices);
  }
  arrivals_.clear();
}

void Engine::DropLeavers(int64_t now_us) {
  scheduler_.RemoveIf([&](Sequence& sequence) {
    const std::optional<ChoiceEnding> ending = WhyLeave(sequence, now_us);
    if (!ending.has_value()) return false;
    ActiveRequest& owner = *sequence.owner;
    if (owner.progress.first_step_us < 0) queue_.Leave(owner, /*started=*/false, now_us);
    owner.endings[static_cast<size_t>(sequence.choice)] = *ending;
    PostEnd(sequence, now_us);
    for (const auto& sibling : sequence.siblings) {
      owner.endings[static_cast<size_t>(sibling->choice)] = *ending;
      PostEnd(*sibling, now_us);
    }
    return true;
  });
}

std::optional<ChoiceEnding> Engine::WhyLeave(const Sequence& sequence, int64_t now_us) const {
  const ActiveRequest& owner = *sequence.owner;
  if (owner.failed) return ChoiceEnding{.ending = Ending::kFailed};
  if (owner.cancelled) return ChoiceEnding{.ending = Ending::kCancelled};
  if (has_failed_) return ChoiceEnding{.ending = Ending::kDeviceFailed};
  if ((owner.text_stops & (1u << sequence.choice)) != 0) {
    return ChoiceEnding{.reason = FinishReason::kStopString};
  }
  if (owner.request.deadline_us <= now_us) return ChoiceEnding{.ending = Ending::kExpired};
  if (owner.request.time_limit_us <= now_us) {
    return ChoiceEnding{.reason = FinishReason::kTimeLimit};
  }
  if (stopping_) {
    return ChoiceEnding{.ending = Ending::kShutDown, .reason = FinishReason::kShutdown};
  }
  return std::nullopt;
}

void Engine::NoteStarts(int64_t now_us) {
  const auto note = [&](const Sequence& sequence, HistoryEvent event) {
    if (sequence.owner->record == nullptr) return;
    event.at_us = now_us - sequence.request().arrival_us;
    sequence.owner->record->AddEvent(event);
  };
  for (const Scheduler::Preempted& preempted : scheduler_.preempted()) {
    note(*preempted.sequence,
         {.kind = HistoryEvent::Kind::kPreempted, .tokens = preempted.computed});
  }
  const auto batch_size = static_cast<int>(scheduler_.step().size());
  for (Sequence* sequence : scheduler_.step()) {
    const int prompt_rows =
        std::min(sequence->planned, std::max(0, sequence->prompt_length() - sequence->computed));
    prefilled_.Add(now_us, prompt_rows);
    ActiveRequest::Progress& progress = sequence->owner->progress;
    if (progress.first_step_us < 0) {
      progress.first_step_us = now_us;
      queue_.Leave(*sequence->owner, /*started=*/true, now_us);
      note(*sequence, {.kind = HistoryEvent::Kind::kAdmitted,
                       .tokens = sequence->owner->timeline.cached_prompt_tokens,
                       .batch_size = batch_size});
    }
    if (prompt_rows == 0) continue;
    note(*sequence, {.kind = HistoryEvent::Kind::kPrefillChunk,
                     .tokens = prompt_rows,
                     .batch_size = batch_size});
  }
}

// What is kept of a row, and how far a replayed row is from what was kept.
void Engine::ReadCertificates(const Batch& batch) {
  const auto row_size = static_cast<size_t>(runner_.limits().num_layers) *
                        static_cast<size_t>(runner_.limits().num_heads);
  lse_deltas_.assign(scheduler_.step().size(), -1.0f);
  log_sum_exp_.resize(batch.certified_rows.size() * row_size);
  runner_.ReadLogSumExp(batch, log_sum_exp_);
  for (size_t i = 0; i < batch.certified_rows.size(); ++i) {
    const int32_t row = batch.certified_rows[i];
    const auto index = static_cast<size_t>(std::ranges::upper_bound(batch.row_begin, row) -
                                           batch.row_begin.begin() - 1);
    const int position = batch.first_position[index] + row - batch.row_begin[index];
    const std::span<const float> now = std::span(log_sum_exp_).subspan(i * row_size, row_size);
    const Sequence& sequence = *scheduler_.step()[index];
    if (sequence.owner->record != nullptr) {
      sequence.owner->record->KeepRow(sequence.choice, position, now);
    }
    for (const RowCertificate& kept : sequence.request().certificates) {
      if (kept.position != position) continue;
      float& delta = lse_deltas_[index];
      delta = std::max(delta, 0.0f);
      for (size_t n = 0; n < row_size; ++n) {
        delta = std::max(delta, std::abs(now[n] - kept.log_sum_exp[n]));
      }
    }
  }
}

void Engine::ReadTraces(const Batch& batch) {
  const int64_t began_us = clock_.NowMicros();
  pieces_.clear();
  lse_deltas_.assign(scheduler_.step().size(), -1.0f);
  if (!batch.certified_rows.empty()) ReadCertificates(batch);
  if (!batch.traces.empty()) runner_.ReadAttention(batch, pieces_);
  const auto spent_us = static_cast<double>(clock_.NowMicros() - began_us);
  size_t begin = 0;
  for (size_t index = 0; index < scheduler_.step().size(); ++index) {
    size_t end = begin;
    double share = 0;
    for (; end < pieces_.size() && SequenceOf(batch, pieces_[end]) == index; ++end) {
      share += pieces_[end].share;
    }
    if (begin < end || lse_deltas_[index] >= 0) {
      PostTrace(*scheduler_.step()[index], std::span(pieces_).subspan(begin, end - begin),
                static_cast<int64_t>(share * spent_us), lse_deltas_[index]);
    }
    begin = end;
  }
}

void Engine::PostTrace(const Sequence& sequence, std::span<AttentionPiece> pieces, int64_t added_us,
                       float lse_delta) {
  auto step = std::make_shared<TracedStep>();
  step->choice = sequence.choice;
  step->added_us = added_us;
  step->lse_delta = std::max(0.0f, lse_delta);
  size_t bytes = 0;
  for (AttentionPiece& piece : pieces) {
    bytes += piece.bytes();
    step->pieces.push_back(std::move(piece));
  }
  step->hold = CreditHold(sequence.owner->trace_credit, static_cast<int64_t>(bytes));
  events_.push_back({.request = sequence.owner, .traced = std::move(step)});
}

void Engine::NoteFailure() {
  has_failed_ = true;
  queue_.Close(absl::UnavailableError(kDeviceFailedText));
  std::ranges::fill(next_tokens_, kNoToken);
}

void Engine::NoteResult(const StepResult& result, int64_t now_us) {
  Sequence& sequence = *result.sequence;
  if (has_failed_) {
    sequence.prompt_logprobs = nullptr;
    if (result.has_ended) {
      sequence.owner->endings[static_cast<size_t>(sequence.choice)] = {.ending =
                                                                           Ending::kDeviceFailed};
    }
  }
  if (sequence.prompt_logprobs != nullptr) {
    events_.push_back(
        {.request = sequence.owner, .prompt_logprobs = std::move(sequence.prompt_logprobs)});
  }
  if (result.token >= 0) {
    ActiveRequest::Progress& progress = sequence.owner->progress;
    if (progress.first_token_us < 0) {
      progress.first_token_us = now_us;
      if (sequence.owner->record != nullptr) {
        sequence.owner->record->AddEvent(
            {.kind = HistoryEvent::Kind::kFirstToken,
             .at_us = now_us - sequence.request().arrival_us,
             .batch_size = static_cast<int>(scheduler_.step().size())});
      }
    }
    progress.last_token_us = now_us;
    generated_.Add(now_us, 1);
    events_.push_back(
        {.request = sequence.owner, .choice = sequence.choice, .token = result.token});
    if (result.logprobs != nullptr) {
      events_.back().logprobs = std::make_unique<TokenLogprobs>(*result.logprobs);
    }
  }
  if (result.has_ended) PostEnd(sequence, now_us);
}

void Engine::PostEnd(const Sequence& sequence, int64_t now_us) {
  ActiveRequest& owner = *sequence.owner;
  ActiveRequest::Progress& progress = owner.progress;
  if (--progress.open_choices == 0) {
    Timeline& timeline = owner.timeline;
    const bool has_started = progress.first_step_us >= 0;
    const bool has_token = progress.first_token_us >= 0;
    timeline.queue_us = (has_started ? progress.first_step_us : now_us) - owner.request.arrival_us;
    if (has_started) {
      timeline.prefill_us = (has_token ? progress.first_token_us : now_us) - progress.first_step_us;
    }
    if (has_token) timeline.decode_us = progress.last_token_us - progress.first_token_us;
  }
  events_.push_back({.request = sequence.owner, .choice = sequence.choice, .is_end = true});
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
