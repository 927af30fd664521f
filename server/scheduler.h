// Decides who is computed when. Pure: no clock, no thread, no I/O; a function of the calls alone.
//
// There are no phases: a sequence has tokens to compute, one when it decodes, many when its prompt
// is new or when it was preempted. Every step
//   1. gives each decoding sequence its one token, so that a running stream waits for at most one
//      step of max_step_tokens rows between two tokens;
//   2. admits waiting requests: by priority, then arrival. Conservatively (default) only what can
//      finish with the blocks there are, so that nothing is ever preempted; optimistically what can
//      start, at the risk of preemption by recompute (lowest priority, latest arrival first).
//      Nothing starves: a request that does not fit is passed at most bypass_limit times, and
//      after bypass_limit admissions that passed the oldest request, the oldest is next;
//   3. shares prefill_chunk_tokens among prompts: an eighth is the first's in order of service, the
//      rest goes to the shortest first. A prompt whose next block another sequence is computing
//      waits for it. A sequence that is alone may fill the whole step.
// A request of several choices is admitted as a whole, with a place for each; see sequence.h.
// A traced request computes the rows that it asks for even where their keys are cached, at most
// max_traced_rows in a step, and none while too much of its trace is on its way: others go on.
// Where the runner runs ahead, a step of decoding names the sequences that mean to go on, and their
// blocks for the token after this one.
// Blocks become reusable by others only after they were computed, and the last token of a prompt is
// always computed, since its logits are needed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "model/batch.h"
#include "model/kv_cache.h"
#include "model/runner.h"
#include "server/request.h"
#include "server/sequence.h"

namespace vitrine::server {

struct SchedulerOptions {
  int max_running_sequences = 0;
  int max_step_tokens = 0;       // At least max_running_sequences.
  int prefill_chunk_tokens = 0;  // 1 .. max_step_tokens.
  bool optimistic_admission = false;
  int bypass_limit = 8;
  int max_traced_rows = 0;      // In one step; at least max_running_sequences, or 0: none, ever.
  int max_sequence_blocks = 0;  // Room for the tables of a step; the engine knows.
  bool runs_ahead = false;      // As the runner's limits; the engine knows.
};

// What a step did for one sequence. `sequence` is valid until the next call of Next.
struct StepResult {
  Sequence* sequence = nullptr;
  TokenId token = -1;                       // Of the answer; -1: none.
  const TokenLogprobs* logprobs = nullptr;  // Of the token; the runner's.
  bool has_ended = false;  // Then owner->endings[choice] says how; its blocks are free already.
};

class Scheduler {
 public:
  // `pool` must outlive the scheduler.
  Scheduler(const SchedulerOptions& options, BlockPool& pool);

  // Puts a request in the waiting line. Its block_limit must fit the pool, and its choices
  // max_running_sequences.
  void Admit(std::unique_ptr<Sequence> sequence);

  // Forms the next step. Empty when nothing is left to compute; valid until the next call. Every
  // non-empty step must be followed by Complete.
  const Batch& Next();

  // `next`: one token per sampled row, kNoToken where there was none; `logprobs`,
  // `prompt_logprobs`: one per entry of the batch's. Results are in order of service, and valid
  // until the next call of Next.
  std::span<const StepResult> Complete(std::span<const TokenId> next,
                                       std::span<const TokenLogprobs> logprobs = {},
                                       std::span<const TokenLogprobs> prompt_logprobs = {});

  // Takes out every sequence for which `should_leave` holds, with its siblings, and frees its
  // blocks at once. Between steps only. `should_leave` may keep the owner; the sequence dies when
  // it returns true.
  void RemoveIf(absl::FunctionRef<bool(Sequence&)> should_leave);

  // Sequences that were set aside for the step formed last, and the tokens they had computed.
  struct Preempted {
    Sequence* sequence = nullptr;
    int computed = 0;
  };
  std::span<const Preempted> preempted() const { return preempted_; }

  // Sequences of the step formed last.
  std::span<Sequence* const> step() const { return step_; }
  int waiting() const { return static_cast<int>(waiting_.size()); }
  int running() const { return static_cast<int>(running_.size()); }
  bool is_empty() const { return waiting_.empty() && running_.empty(); }
  int64_t preemptions() const { return preemptions_; }
  // Arrival of the request that has waited longest, monotonic; kNever: none waits.
  int64_t OldestArrivalMicros() const;

 private:
  using Line = std::vector<std::unique_ptr<Sequence>>;  // In order of service.

  void PlanDecodes();
  void AdmitWaiting();
  Line::iterator PickWaiting();
  Line::iterator OldestWaiting();
  bool Fits(const Sequence& sequence) const;
  void Start(Line::iterator position);
  int places_taken() const;

  void PlanPrefills();
  void CollectPrefills();
  bool WaitsForAnother(const Sequence& sequence) const;
  int Plannable(const Sequence& sequence) const;
  void Grant(Sequence& sequence, int tokens);
  void ReuseCached(Sequence& sequence);

  void LookAhead();
  bool SecureBlocks(Sequence& sequence, int tokens);
  void Preempt(Sequence& sequence);
  void FormBatch();
  void NoteStep(const Sequence& sequence);
  void AddSample(const Sequence& sequence);
  void AddScoredRows(const Sequence& sequence);
  void ListTraces(const Sequence& sequence);
  void ListCertified(const Sequence& sequence);

  void Fork(Sequence& sequence);
  void PublishComputed(Sequence& sequence, int blocks);
  StepResult TakeToken(Sequence& sequence, TokenId token);
  void End(Sequence& sequence, const ChoiceEnding& ending);
  void Insert(Line& line, std::unique_ptr<Sequence> sequence);
  static std::unique_ptr<Sequence> Extract(Line& line, const Sequence& sequence);

  const SchedulerOptions options_;
  BlockPool& pool_;
  Line waiting_;
  Line running_;
  Line ended_;  // By Complete; alive until the next step, for who reads its results.
  Batch batch_;
  std::vector<Sequence*> step_;      // Those with rows in batch_, in its order.
  std::vector<Sequence*> prefills_;  // Scratch of PlanPrefills.
  std::vector<StepResult> results_;
  std::vector<Preempted> preempted_;
  int budget_ = 0;              // Rows left in the step being formed.
  int traced_budget_ = 0;       // Of these, rows that may be traced.
  bool has_preempted_ = false;  // In the step being formed.
  int oldest_passed_ = 0;       // Admissions in a row that passed the oldest waiting request.
  int64_t preemptions_ = 0;
  int64_t step_number_ = 0;
};

}  // namespace vitrine::server
