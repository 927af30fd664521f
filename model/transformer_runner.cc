#include "model/transformer_runner.h"

#include "model/status.h"

namespace vitrine {

absl::StatusOr<std::unique_ptr<TransformerRunner>> TransformerRunner::Create(
    Backend& backend, ModelConfig config, Weights weights, const TransformerLimits& limits) {
  std::unique_ptr<TransformerRunner> runner(
      new TransformerRunner(backend, std::move(config), std::move(weights)));
  VITRINE_ASSIGN_OR_RETURN(runner->transformer_,
                           Transformer::Create(backend, runner->config_, runner->weights_, limits));
  VITRINE_ASSIGN_OR_RETURN(
      runner->adjusted_,
      backend.Allocate(static_cast<size_t>(limits.max_samples) *
                       static_cast<size_t>(runner->config_.vocabulary) * sizeof(float)));
  VITRINE_ASSIGN_OR_RETURN(
      runner->token_ids_,
      backend.Allocate(static_cast<size_t>(limits.max_samples) * sizeof(TokenId)));
  runner->limits_ = {.max_step_rows = limits.max_rows,
                     .max_step_sequences = limits.max_samples,
                     .num_blocks = limits.num_blocks,
                     .context_length = limits.max_positions,
                     .vocabulary = runner->config_.vocabulary};
  return runner;
}

void TransformerRunner::Step(const Batch& batch, std::span<TokenId> next) {
  VITRINE_CHECK_EQ(next.size(), batch.sampling.size());
  logits_ = transformer_->Forward(batch);
  if (next.empty()) {
    backend_.Synchronize();
    return;
  }
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
  backend_.CopyToHost(drawn, next);
}

void TransformerRunner::CopyLogits(std::span<float> logits) {
  backend_.CopyToHost(logits_, logits);
}

}  // namespace vitrine
