#include "server/scheduler.h"

#include <algorithm>
#include <utility>

namespace vitrine::server {
namespace {

// Of the prompt rows of a step: what is the first's in order of service, however long it is. An
// eighth, so that a prompt of 100 tokens beside a long one is done after two chunks of 64.
constexpr int kFirstShare = 8;

bool Contains(const std::vector<TokenId>& ids, TokenId id) {
  return std::ranges::find(ids, id) != ids.end();
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, BlockPool& pool)
    : options_(options), pool_(pool) {
  VITRINE_CHECK_LE(options.max_running_sequences, options.max_step_tokens);
  VITRINE_CHECK_LE(options.prefill_chunk_tokens, options.max_step_tokens);
  VITRINE_CHECK_LT(0, options.prefill_chunk_tokens);
  VITRINE_CHECK(options.max_traced_rows == 0 ||
                options.max_traced_rows >= options.max_running_sequences);
  const auto sequences = static_cast<size_t>(options.max_running_sequences);
  const auto rows = static_cast<size_t>(options.max_step_tokens);
  running_.reserve(sequences);
  step_.reserve(sequences);
  prefills_.reserve(sequences);
  results_.reserve(sequences);
  ended_.reserve(sequences);
  batch_.token_ids.reserve(rows);
  batch_.row_begin.reserve(sequences + 1);
  batch_.first_position.reserve(sequences);
  // A table has one row per sequence, as wide as the longest of them.
  batch_.block_table.reserve(sequences * static_cast<size_t>(options.max_sequence_blocks));
  batch_.sampled_rows.reserve(sequences);
  batch_.sampling.reserve(sequences);
  batch_.adjustments.reserve(sequences);
  batch_.logprobs.reserve(sequences);
  batch_.scored.reserve(rows);
  batch_.continuing.reserve(sequences);
}

void Scheduler::Admit(std::unique_ptr<Sequence> sequence) {
  VITRINE_CHECK_LE(sequence->block_limit(), pool_.num_blocks());
  VITRINE_CHECK_LE(1 + sequence->num_siblings(), options_.max_running_sequences);
  Insert(waiting_, std::move(sequence));
}

const Batch& Scheduler::Next() {
  ended_.clear();
  budget_ = options_.max_step_tokens;
  traced_budget_ = options_.max_traced_rows;
  has_preempted_ = false;
  preempted_.clear();
  // Looked at once, as readers take from their traces all the time.
  for (const auto& sequence : running_) {
    const TraceCredit* credit = sequence->owner->trace_credit.get();
    sequence->is_paused = credit != nullptr && credit->is_full();
  }
  PlanDecodes();
  AdmitWaiting();
  PlanPrefills();
  LookAhead();
  FormBatch();
  return batch_;
}

void Scheduler::PlanDecodes() {
  // By index: Grant may preempt from the end of the line.
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.remaining() == 1 && Plannable(sequence) == 1) Grant(sequence, 1);
  }
}

void Scheduler::AdmitWaiting() {
  // What was just preempted must not come back into the blocks that it made room for.
  if (has_preempted_) return;
  while (places_taken() < options_.max_running_sequences) {
    const Line::iterator position = PickWaiting();
    if (position == waiting_.end()) break;
    Start(position);
  }
}

Scheduler::Line::iterator Scheduler::PickWaiting() {
  if (waiting_.empty()) return waiting_.end();
  if (oldest_passed_ >= options_.bypass_limit) {
    const Line::iterator oldest = OldestWaiting();
    return Fits(**oldest) ? oldest : waiting_.end();
  }
  int skipped = 0;
  for (Line::iterator position = waiting_.begin(); position != waiting_.end(); ++position) {
    if (Fits(**position)) return position;
    if ((*position)->bypassed >= options_.bypass_limit) break;
    // A window, so that a long line of requests that do not fit costs a step little.
    if (++skipped > options_.bypass_limit) break;
  }
  return waiting_.end();
}

Scheduler::Line::iterator Scheduler::OldestWaiting() {
  return std::ranges::min_element(waiting_, {}, [](const auto& s) { return s->arrival; });
}

bool Scheduler::Fits(const Sequence& sequence) const {
  if (running_.empty()) return true;
  const int places = 1 + sequence.num_siblings();
  if (places_taken() + places > options_.max_running_sequences) return false;
  int available = pool_.available();
  int needed;
  if (options_.optimistic_admission) {
    needed =
        BlocksFor(std::min(sequence.length() + 1, sequence.kv_limit())) + sequence.num_siblings();
    available -= places_taken();  // Each may need its next block soon.
  } else {
    needed = sequence.block_limit();
    for (const auto& other : running_) available -= other->blocks_to_come();
  }
  if (needed <= available) return true;
  // Blocks that a running sequence owns anyway come for nothing.
  const auto reusable = static_cast<size_t>(sequence.reusable());
  const PrefixMatch match =
      pool_.Match(sequence.root_chain, std::span(sequence.tokens).first(reusable));
  return needed - match.owned_blocks <= available;
}

void Scheduler::Start(Line::iterator position) {
  const bool is_oldest = position == OldestWaiting();
  oldest_passed_ = is_oldest ? 0 : oldest_passed_ + 1;
  for (Line::iterator before = waiting_.begin(); before != position; ++before) {
    ++(*before)->bypassed;
  }
  std::unique_ptr<Sequence> sequence = std::move(*position);
  waiting_.erase(position);
  Sequence& started = *sequence;
  started.bypassed = 0;
  started.is_running = true;
  Insert(running_, std::move(sequence));
  ReuseCached(started);
}

int Scheduler::places_taken() const {
  int places = running();
  for (const auto& sequence : running_) places += sequence->num_siblings();
  return places;
}

void Scheduler::PlanPrefills() {
  CollectPrefills();
  if (prefills_.empty()) return;
  const bool is_alone = running() == 1 && waiting_.empty();
  int left = std::min(budget_, is_alone ? options_.max_step_tokens : options_.prefill_chunk_tokens);
  Sequence* const first = prefills_.front();
  const int first_share = std::min(Plannable(*first), std::max(1, left / kFirstShare));
  left -= first_share;
  std::ranges::sort(prefills_, [](const Sequence* a, const Sequence* b) {
    return a->remaining() != b->remaining() ? a->remaining() < b->remaining() : GoesBefore(*a, *b);
  });
  for (Sequence* sequence : prefills_) {
    const int share = sequence == first ? first_share : 0;
    const int tokens = std::min(Plannable(*sequence), share + left);
    left -= std::max(0, tokens - share);
    // An earlier one in this loop may have preempted it.
    if (tokens > 0 && sequence->is_running) Grant(*sequence, tokens);
  }
}

void Scheduler::CollectPrefills() {
  prefills_.clear();
  for (const auto& sequence : running_) {
    if (sequence->planned > 0) continue;
    ReuseCached(*sequence);
    if (Plannable(*sequence) == 0 || WaitsForAnother(*sequence)) continue;
    prefills_.push_back(sequence.get());
  }
}

bool Scheduler::WaitsForAnother(const Sequence& sequence) const {
  if (!pool_.has_prefix_cache() || sequence.computed % kKvBlockTokens != 0) return false;
  const int end = sequence.computed + kKvBlockTokens;
  if (end > sequence.reusable()) return false;
  const int block = sequence.computed / kKvBlockTokens;
  return std::ranges::any_of(prefills_, [&](const Sequence* leader) {
    return leader->computed / kKvBlockTokens == block && leader->length() >= end &&
           leader->chain == sequence.chain &&
           std::ranges::equal(leader->BlockTokens(block), sequence.BlockTokens(block));
  });
}

// Tokens that the sequence may compute in this step as far as its trace is concerned.
int Scheduler::Plannable(const Sequence& sequence) const {
  const TraceSpec* trace = sequence.request().trace.get();
  if (trace == nullptr) return sequence.remaining();
  int rows = 0;
  if (!sequence.is_paused) {
    const int64_t row_bytes = std::max<int64_t>(1, trace->StepBytes(sequence.length() - 1));
    const int64_t fitting = sequence.owner->trace_credit->limit_bytes() / row_bytes;
    rows = std::min(static_cast<int>(std::max<int64_t>(1, fitting)), traced_budget_);
  }
  const int end = trace->RowAfter(std::max(sequence.traced, sequence.computed), rows);
  return std::min(sequence.remaining(), end - sequence.computed);
}

void Scheduler::Grant(Sequence& sequence, int tokens) {
  if (!SecureBlocks(sequence, sequence.computed + tokens)) return;
  sequence.planned = tokens;
  budget_ -= tokens;
  traced_budget_ -= sequence.traced_rows();
}

void Scheduler::ReuseCached(Sequence& sequence) {
  const int before = sequence.computed;
  while (sequence.computed == sequence.chained_blocks * kKvBlockTokens &&
         sequence.computed + kKvBlockTokens <= sequence.reusable() &&
         pool_.AcquireCached(sequence.BlockTokens(sequence.chained_blocks), sequence.chain,
                             sequence.blocks)) {
    ++sequence.chained_blocks;
    sequence.computed += kKvBlockTokens;
  }
  // After a preemption it finds blocks of its own: those were computed, not saved.
  const int saved = std::min(sequence.computed, sequence.prompt_length()) -
                    std::max(before, sequence.furthest_computed);
  sequence.owner->timeline.cached_prompt_tokens += std::max(0, saved);
  sequence.furthest_computed = std::max(sequence.furthest_computed, sequence.computed);
}

// Of a step that decodes, and nothing else: which sequences go on. Their next blocks are among
// those that they were admitted with, or nobody's need.
void Scheduler::LookAhead() {
  bool decodes = options_.runs_ahead;
  for (const auto& sequence : running_) {
    sequence->continues = false;
    if (sequence->planned == 0) continue;
    decodes =
        decodes && sequence->remaining() == 1 && sequence->wants_token() && sequence->is_plain();
  }
  if (!decodes) return;
  const int kept = options_.optimistic_admission ? places_taken() : 0;
  for (const auto& sequence : running_) {
    const int length = sequence->length() + 1;
    if (sequence->planned == 0 || length >= sequence->request().stop.max_length) continue;
    const int needed = BlocksFor(length) - static_cast<int>(sequence->blocks.size());
    sequence->continues = needed <= 0 || (pool_.available() - kept >= needed &&
                                          pool_.Acquire(needed, sequence->blocks));
  }
}

bool Scheduler::SecureBlocks(Sequence& sequence, int tokens) {
  const int needed = BlocksFor(tokens) - static_cast<int>(sequence.blocks.size());
  if (needed <= 0) return true;
  while (needed > pool_.available()) {
    // Conservative admission promised the blocks.
    VITRINE_CHECK(options_.optimistic_admission);
    Sequence& victim = *running_.back();
    Preempt(victim);
    if (&victim == &sequence) return false;
  }
  return pool_.Acquire(needed, sequence.blocks);
}

void Scheduler::Preempt(Sequence& sequence) {
  budget_ += sequence.planned;
  traced_budget_ += sequence.traced_rows();
  preempted_.push_back({.sequence = &sequence, .computed = sequence.computed});
  sequence.planned = 0;
  pool_.Release(sequence.blocks);
  sequence.computed = 0;
  sequence.chain = sequence.root_chain;
  sequence.chained_blocks = 0;
  sequence.is_running = false;
  ++sequence.owner->timeline.preemptions;
  ++preemptions_;
  has_preempted_ = true;
  Insert(waiting_, Extract(running_, sequence));
}

void Scheduler::FormBatch() {
  batch_.Clear();
  step_.clear();
  ++step_number_;
  batch_.max_blocks = 0;
  for (const auto& owned : running_) {
    Sequence& sequence = *owned;
    if (sequence.planned == 0) continue;
    if (sequence.continues) batch_.continuing.push_back(static_cast<int32_t>(step_.size()));
    step_.push_back(&sequence);
    const auto begin = sequence.tokens.begin() + sequence.computed;
    batch_.token_ids.insert(batch_.token_ids.end(), begin, begin + sequence.planned);
    batch_.row_begin.push_back(batch_.rows());
    batch_.first_position.push_back(sequence.computed);
    batch_.max_blocks = std::max(batch_.max_blocks, static_cast<int>(sequence.blocks.size()));
    if (sequence.planned == sequence.remaining() && sequence.wants_token()) AddSample(sequence);
    AddScoredRows(sequence);
    if (sequence.request().trace != nullptr) ListTraces(sequence);
    ListCertified(sequence);
  }
  const auto width = static_cast<size_t>(batch_.max_blocks);
  for (Sequence* sequence : step_) {
    NoteStep(*sequence);
    const size_t end = batch_.block_table.size() + width;
    batch_.block_table.insert(batch_.block_table.end(), sequence->blocks.begin(),
                              sequence->blocks.end());
    batch_.block_table.resize(end, 0);
  }
}

void Scheduler::NoteStep(const Sequence& sequence) {
  Timeline& timeline = sequence.owner->timeline;
  ActiveRequest::Progress& progress = sequence.owner->progress;
  // Its choices may be in one step together.
  if (std::exchange(progress.last_step, step_number_) != step_number_) {
    ++timeline.steps;
    timeline.step_sequences += static_cast<int64_t>(step_.size());
  }
  if (sequence.computed < sequence.prompt_length() &&
      std::exchange(progress.last_prefill_step, step_number_) != step_number_) {
    ++timeline.prefill_chunks;
  }
}

// Of the sequence whose rows are the batch's last.
void Scheduler::AddSample(const Sequence& sequence) {
  const SamplingParams& sampling = sequence.request().sampling;
  SampleRow row = {.temperature = sampling.temperature,
                   .top_k = sampling.top_k,
                   .typical_p = sampling.typical_p,
                   .top_p = sampling.top_p,
                   .min_p = sampling.min_p,
                   .seed = sampling.seed,
                   .choice = static_cast<uint32_t>(sequence.choice),
                   .position = sequence.length()};
  const auto sample = static_cast<int32_t>(batch_.sampling.size());
  if (const auto adjustment = sequence.Adjustment(sample)) {
    row.adjusted_row = static_cast<int32_t>(batch_.adjustments.size());
    batch_.adjustments.push_back(*adjustment);
  }
  const OutputRules& output = sequence.request().output;
  if (output.logprobs >= 0) {
    batch_.logprobs.push_back({.row = sample,
                               .top_count = output.logprobs,
                               .is_processed = output.logprobs_are_processed});
  }
  batch_.sampled_rows.push_back(batch_.rows() - 1);
  batch_.sampling.push_back(row);
}

void Scheduler::AddScoredRows(const Sequence& sequence) {
  const int first_row = batch_.rows() - sequence.planned;
  const auto [begin, end] = sequence.scored_range();
  for (int position = begin; position < end; ++position) {
    batch_.scored.push_back({.row = first_row + position - sequence.computed,
                             .token_id = sequence.tokens[static_cast<size_t>(position) + 1],
                             .top_count = sequence.request().output.prompt_logprobs});
  }
}

// The wanted rows of the step, in runs; rows of the prompt and later ones are never in one run.
void Scheduler::ListTraces(const Sequence& sequence) {
  const TraceSpec& trace = *sequence.request().trace;
  const int end = sequence.computed + sequence.planned;
  const int first_row = batch_.rows() - sequence.planned;
  for (int row = sequence.NextTracedRow(); row < end;) {
    int run_end = row < trace.prompt_tokens ? std::min(end, trace.prompt_tokens) : end;
    run_end = std::min(run_end, trace.RunEnd(row));
    batch_.traces.push_back({.sequence = static_cast<int32_t>(step_.size()) - 1,
                             .first_row = first_row + row - sequence.computed,
                             .rows = run_end - row,
                             .plan = &trace.plan});
    row = trace.NextRow(run_end);
  }
}

// Of a request that is kept, the row that chooses a token; of a replay, those it is compared by.
void Scheduler::ListCertified(const Sequence& sequence) {
  const int first_row = batch_.rows() - sequence.planned;
  if (sequence.owner->record != nullptr && sequence.planned == sequence.remaining()) {
    batch_.certified_rows.push_back(batch_.rows() - 1);
  }
  for (const RowCertificate& certificate : sequence.request().certificates) {
    const int row = certificate.position - sequence.computed;
    if (row < 0 || row >= sequence.planned || certificate.position < sequence.traced) continue;
    batch_.certified_rows.push_back(first_row + row);
  }
}

std::span<const StepResult> Scheduler::Complete(std::span<const TokenId> next,
                                                std::span<const TokenLogprobs> logprobs,
                                                std::span<const TokenLogprobs> prompt_logprobs) {
  VITRINE_CHECK_EQ(prompt_logprobs.size(), batch_.scored.size());
  VITRINE_CHECK_EQ(next.size(), batch_.sampling.size());
  VITRINE_CHECK_EQ(logprobs.size(), batch_.logprobs.size());
  results_.clear();
  size_t drawn = 0;
  size_t scored = 0;
  for (Sequence* sequence : step_) {
    const auto [begin, end] = sequence->scored_range();
    for (int position = begin; position < end; ++position) {
      sequence->prompt_logprobs->push_back(prompt_logprobs.front());
      prompt_logprobs = prompt_logprobs.subspan(1);
    }
    sequence->computed += std::exchange(sequence->planned, 0);
    sequence->furthest_computed = std::max(sequence->furthest_computed, sequence->computed);
    sequence->traced = std::max(sequence->traced, sequence->computed);
    if (sequence->remaining() == 0 && !sequence->siblings.empty()) Fork(*sequence);
    PublishComputed(*sequence, sequence->computed / kKvBlockTokens);
    if (sequence->remaining() > 0) continue;
    if (sequence->wants_token()) {
      const bool has_logprobs = sequence->request().output.logprobs >= 0;
      const TokenLogprobs* const own = has_logprobs ? &logprobs[scored++] : nullptr;
      StepResult result = TakeToken(*sequence, next[drawn++]);
      if (result.token >= 0) result.logprobs = own;
      results_.push_back(result);
    } else {
      End(*sequence, {.reason = FinishReason::kMaxTokens});
      results_.push_back({.sequence = sequence, .has_ended = true});
    }
  }
  return results_;
}

void Scheduler::Fork(Sequence& sequence) {
  // No further: the chain must be that after the last block shared.
  PublishComputed(sequence, sequence.shared_blocks());
  for (auto& sibling : sequence.siblings) {
    pool_.Share(std::span(sequence.blocks).first(static_cast<size_t>(sequence.chained_blocks)),
                sibling->blocks);
    sibling->chain = sequence.chain;
    sibling->chained_blocks = sequence.chained_blocks;
    sibling->computed = sequence.chained_blocks * kKvBlockTokens;
    sibling->furthest_computed = sibling->computed;
    sibling->is_running = true;
    Insert(running_, std::move(sibling));
  }
  sequence.siblings.clear();
}

void Scheduler::PublishComputed(Sequence& sequence, int blocks) {
  while (sequence.chained_blocks < blocks) {
    const int block = sequence.chained_blocks++;
    pool_.Publish(sequence.blocks[static_cast<size_t>(block)], sequence.BlockTokens(block),
                  sequence.chain);
  }
}

StepResult Scheduler::TakeToken(Sequence& sequence, TokenId token) {
  const StopRules& stop = sequence.request().stop;
  StepResult result = {.sequence = &sequence, .has_ended = true};
  if (token == kNoToken) {
    End(sequence, {.ending = Ending::kFailed});
  } else if (!stop.ignore_eos && Contains(stop.eos_ids, token)) {
    End(sequence, {.reason = FinishReason::kEos, .stop_token = token});
  } else if (Contains(stop.stop_token_ids, token)) {
    End(sequence, {.reason = FinishReason::kStopToken, .stop_token = token});
  } else {
    sequence.Append(token);
    result.token = token;
    result.has_ended = !sequence.wants_token();
    if (result.has_ended) {
      End(sequence, {.reason = stop.max_length_is_context ? FinishReason::kContextFull
                                                          : FinishReason::kMaxTokens});
    }
  }
  return result;
}

void Scheduler::End(Sequence& sequence, const ChoiceEnding& ending) {
  sequence.owner->endings[static_cast<size_t>(sequence.choice)] = ending;
  pool_.Release(sequence.blocks);
  sequence.is_running = false;
  ended_.push_back(Extract(running_, sequence));
}

void Scheduler::RemoveIf(absl::FunctionRef<bool(Sequence&)> should_leave) {
  for (Line* line : {&running_, &waiting_}) {
    std::erase_if(*line, [&](const std::unique_ptr<Sequence>& sequence) {
      if (!should_leave(*sequence)) return false;
      pool_.Release(sequence->blocks);
      return true;
    });
  }
}

int64_t Scheduler::OldestArrivalMicros() const {
  int64_t oldest = kNever;
  for (const auto& sequence : waiting_) oldest = std::min(oldest, sequence->request().arrival_us);
  return oldest;
}

void Scheduler::Insert(Line& line, std::unique_ptr<Sequence> sequence) {
  const auto position = std::ranges::upper_bound(
      line, *sequence, GoesBefore, [](const auto& other) -> const Sequence& { return *other; });
  line.insert(position, std::move(sequence));
}

std::unique_ptr<Sequence> Scheduler::Extract(Line& line, const Sequence& sequence) {
  const auto position =
      std::ranges::find(line, &sequence, [](const auto& other) { return other.get(); });
  VITRINE_CHECK(position != line.end());
  std::unique_ptr<Sequence> extracted = std::move(*position);
  line.erase(position);
  return extracted;
}

}  // namespace vitrine::server
