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
      backend.Allocate(static_cast<size_t>(limits.max_samples) * sizeof(TokenId)));
  VITRINE_ASSIGN_OR_RETURN(
      runner->results_, backend.Allocate(static_cast<size_t>(limits.max_rows + limits.max_samples) *
                                         sizeof(LogprobsResult)));
  runner->max_samples_ = static_cast<size_t>(limits.max_samples);
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
  logprobs_.clear();
  prompt_logprobs_.clear();
  logits_ = {};
  const bool is_repeated = RunRepeated(batch);
  if (!is_repeated) {
    transformer_->Forward(batch);
    ScorePrompts(batch);
  }
  if (next.empty()) {
    backend_.Synchronize();
    CollectLogprobs(0, batch.scored.size(), prompt_logprobs_);
    return;
  }
  if (!is_repeated) logits_ = transformer_->Logits(batch.sampled_rows);
  if (!batch.adjustments.empty()) {
    backend_.AdjustLogits({.logits = logits_,
                           .adjustments = batch.adjustments,
                           .vocabulary = config_.vocabulary,
                           .output = adjusted_.As<float>()});
  }
  backend_.Sample({.logits = logits_,
                   .adjusted = adjusted_.As<float>(),
                   .rows = batch.sampling,
                   .vocabulary = config_.vocabulary,
                   .token_ids = token_ids_.As<TokenId>()});
  const DeviceSpan<const TokenId> drawn = token_ids_.As<TokenId>().subspan(0, next.size());
  if (!batch.logprobs.empty()) {
    backend_.Logprobs({.logits = logits_,
                       .adjusted = adjusted_.As<float>(),
                       .sampling = batch.sampling,
                       .token_ids = drawn,
                       .rows = batch.logprobs,
                       .vocabulary = config_.vocabulary,
                       .output = results_.As<LogprobsResult>().subspan(batch.scored.size(),
                                                                       batch.logprobs.size())});
  }
  backend_.CopyToHost(drawn, next);
  CollectLogprobs(0, batch.scored.size(), prompt_logprobs_);
  CollectLogprobs(batch.scored.size(), batch.logprobs.size(), logprobs_);
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

// Everything enqueued is complete.
void TransformerRunner::CollectLogprobs(size_t first, size_t count,
                                        std::vector<TokenLogprobs>& logprobs) {
  if (count == 0) return;
  host_results_.resize(count);
  const DeviceSpan<const LogprobsResult> results =
      results_.As<LogprobsResult>().subspan(first, count);
  backend_.CopyToHost(results, std::span(host_results_));
  for (const LogprobsResult& result : host_results_) logprobs.push_back(FinishLogprobs(result));
}

bool TransformerRunner::RunRepeated(const Batch& batch) {
  const Batch* const padded = padding_ != nullptr && records_ ? padding_->Pad(batch) : nullptr;
  if (padded == nullptr) return false;
  backend_.RunRepeated(DecodePadding::Shape(*padded), [&] {
    transformer_->Forward(*padded);
    transformer_->Logits(padded->sampled_rows);
  });
  logits_ = transformer_->logits(static_cast<int>(batch.sampled_rows.size()));
  return true;
}

void TransformerRunner::CopyLogits(std::span<float> logits) {
  backend_.CopyToHost(logits_, logits);
}

}  // namespace vitrine
