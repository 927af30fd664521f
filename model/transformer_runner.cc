#include "model/transformer_runner.h"

#include <algorithm>

#include "model/kv_cache.h"
#include "model/status.h"

namespace vitrine {

absl::StatusOr<std::unique_ptr<TransformerRunner>> TransformerRunner::Create(
    Backend& backend, ModelConfig config, Weights weights, const TransformerLimits& limits) {
  std::unique_ptr<TransformerRunner> runner(
      new TransformerRunner(backend, std::move(config), std::move(weights)));
  TransformerLimits padded = limits;
  if (backend.records()) {
    runner->padding_ =
        std::make_unique<DecodePadding>(std::min(limits.max_rows, limits.max_samples),
                                        BlocksFor(limits.max_positions), limits.num_blocks);
    padded.num_blocks += DecodePadding::kMostSequences;
  }
  VITRINE_ASSIGN_OR_RETURN(runner->transformer_,
                           Transformer::Create(backend, runner->config_, runner->weights_, padded));
  VITRINE_ASSIGN_OR_RETURN(
      runner->adjusted_,
      backend.Allocate(static_cast<size_t>(limits.max_samples) *
                       static_cast<size_t>(runner->config_.vocabulary) * sizeof(float)));
  VITRINE_ASSIGN_OR_RETURN(
      runner->token_ids_,
      backend.Allocate(2 * static_cast<size_t>(limits.max_samples) * sizeof(TokenId)));
  VITRINE_ASSIGN_OR_RETURN(
      runner->results_, backend.Allocate(static_cast<size_t>(limits.max_rows + limits.max_samples) *
                                         sizeof(LogprobsResult)));
  runner->max_samples_ = static_cast<size_t>(limits.max_samples);
  runner->ahead_.emplace(limits.max_rows, limits.max_samples, BlocksFor(limits.max_positions));
  runner->host_token_ids_.resize(2 * runner->max_samples_);
  runner->places_.reserve(runner->max_samples_);
  runner->limits_ = {.max_step_rows = limits.max_rows,
                     .max_step_sequences = limits.max_samples,
                     .num_blocks = limits.num_blocks,
                     .context_length = limits.max_positions,
                     .vocabulary = runner->config_.vocabulary};
  if (limits.max_traced_rows > 0) {
    runner->limits_.max_traced_rows = limits.max_traced_rows;
    runner->limits_.num_layers = runner->config_.num_layers;
    runner->limits_.num_heads = runner->config_.num_heads;
  }
  return runner;
}

void TransformerRunner::Step(const Batch& batch, std::span<TokenId> next) {
  VITRINE_CHECK_EQ(next.size(), batch.sampling.size());
  const StepAhead::Answer answer = ahead_->Take(batch);
  if (answer.rest != nullptr) Enqueue(*answer.rest, half_);
  StartCopies(batch, answer);
  // With nothing left to compute, all was drawn to the other half.
  if (answer.rest == nullptr) half_ = 1 - half_;
  const bool is_whole = answer.rest == nullptr || answer.rest == &batch;
  guess_ = limits_.runs_ahead && is_whole ? ahead_->Guess(batch, places_) : nullptr;
  if (guess_ != nullptr) Enqueue(*guess_, 1 - half_);
  // Chunks of prompts must not queue up: whoever arrives would wait for them all.
  if (next.empty()) backend_.Synchronize();
  backend_.FinishCopies();
  for (size_t i = 0; i < next.size(); ++i) {
    next[i] = host_token_ids_[static_cast<size_t>(places_[i])];
  }
  ahead_->NoteDrawn(next);
  const std::span<const LogprobsResult> results = host_results_;
  FinishResults(results.first(batch.scored.size()), prompt_logprobs_);
  FinishResults(results.subspan(batch.scored.size()), logprobs_);
}

void TransformerRunner::Enqueue(const Batch& batch, int half) {
  logits_ = {};
  const bool is_repeated = RunRepeated(batch);
  if (!is_repeated) {
    transformer_->Forward(batch, token_ids_.As<TokenId>());
    ScorePrompts(batch);
  }
  if (batch.sampling.empty()) return;
  if (!is_repeated) logits_ = transformer_->Logits(batch.sampled_rows);
  if (!batch.adjustments.empty()) {
    backend_.AdjustLogits({.logits = logits_,
                           .adjustments = batch.adjustments,
                           .vocabulary = config_.vocabulary,
                           .output = adjusted_.As<float>()});
  }
  const DeviceSpan<TokenId> drawn = Half(half, batch.sampling.size());
  backend_.Sample({.logits = logits_,
                   .adjusted = adjusted_.As<float>(),
                   .rows = batch.sampling,
                   .vocabulary = config_.vocabulary,
                   .token_ids = drawn});
  if (batch.logprobs.empty()) return;
  backend_.Logprobs({.logits = logits_,
                     .adjusted = adjusted_.As<float>(),
                     .sampling = batch.sampling,
                     .token_ids = drawn,
                     .rows = batch.logprobs,
                     .vocabulary = config_.vocabulary,
                     .output = results_.As<LogprobsResult>().subspan(batch.scored.size(),
                                                                     batch.logprobs.size())});
}

// Of a step whose `answer` is enqueued: says where its tokens lie, and starts the copies of its
// results.
void TransformerRunner::StartCopies(const Batch& batch, const StepAhead::Answer& answer) {
  places_.clear();
  auto next_of_rest = static_cast<int32_t>(HalfBegin(half_));
  const auto guessed = static_cast<int32_t>(HalfBegin(1 - half_));
  for (size_t i = 0; i < batch.sampling.size(); ++i) {
    const int32_t sample = answer.samples.empty() ? -1 : answer.samples[i];
    places_.push_back(sample < 0 ? next_of_rest++ : guessed + sample);
  }
  if (!answer.samples.empty()) CopyHalf(1 - half_, guess_->sampling.size());
  if (answer.rest != nullptr) CopyHalf(half_, answer.rest->sampling.size());
  host_results_.resize(batch.scored.size() + batch.logprobs.size());
  if (host_results_.empty()) return;
  backend_.StartCopyToHost<LogprobsResult>(
      results_.As<LogprobsResult>().subspan(0, host_results_.size()), std::span(host_results_));
}

void TransformerRunner::CopyHalf(int half, size_t samples) {
  if (samples == 0) return;
  backend_.StartCopyToHost<TokenId>(Half(half, samples),
                                    std::span(host_token_ids_).subspan(HalfBegin(half), samples));
}

// In slices that fit the memory for the logits of samples.
void TransformerRunner::ScorePrompts(const Batch& batch) {
  const size_t count = batch.scored.size();
  scored_rows_.clear();
  in_slice_.clear();
  for (size_t i = 0; i < count; ++i) {
    scored_rows_.push_back(batch.scored[i].row);
    in_slice_.push_back(batch.scored[i]);
    in_slice_.back().row = static_cast<int32_t>(i % max_samples_);
  }
  for (size_t first = 0; first < count; first += max_samples_) {
    const size_t size = std::min(max_samples_, count - first);
    backend_.Logprobs({.logits = transformer_->Logits(std::span(scored_rows_).subspan(first, size)),
                       .rows = std::span(in_slice_).subspan(first, size),
                       .vocabulary = config_.vocabulary,
                       .output = results_.As<LogprobsResult>().subspan(first, size)});
  }
}

void TransformerRunner::FinishResults(std::span<const LogprobsResult> results,
                                      std::vector<TokenLogprobs>& logprobs) {
  logprobs.clear();
  for (const LogprobsResult& result : results) logprobs.push_back(FinishLogprobs(result));
}

bool TransformerRunner::RunRepeated(const Batch& batch) {
  const Batch* const padded = padding_ != nullptr && records_ ? padding_->Pad(batch) : nullptr;
  if (padded == nullptr) return false;
  backend_.RunRepeated(DecodePadding::Shape(*padded), [&] {
    transformer_->Forward(*padded, token_ids_.As<TokenId>());
    transformer_->Logits(padded->sampled_rows);
  });
  logits_ = transformer_->logits(static_cast<int>(batch.sampled_rows.size()));
  return true;
}

void TransformerRunner::CopyLogits(std::span<float> logits) {
  VITRINE_CHECK(!limits_.runs_ahead);
  backend_.CopyToHost(logits_, logits);
}

}  // namespace vitrine
