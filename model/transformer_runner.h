// The real Runner: one forward pass and one draw per step. Where it runs ahead, the next decode
// step is enqueued before the results of this one are waited for, and read what was drawn on the
// device.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/decode_padding.h"
#include "model/runner.h"
#include "model/step_ahead.h"
#include "model/transformer.h"

namespace vitrine {

class TransformerRunner final : public Runner {
 public:
  // Takes over config and weights. `backend` must outlive the result.
  static absl::StatusOr<std::unique_ptr<TransformerRunner>> Create(Backend& backend,
                                                                   ModelConfig config,
                                                                   Weights weights,
                                                                   const TransformerLimits& limits);

  const RunnerLimits& limits() const override { return limits_; }
  void Step(const Batch& batch, std::span<TokenId> next) override;
  std::span<const TokenLogprobs> logprobs() const override { return logprobs_; }
  std::span<const TokenLogprobs> prompt_logprobs() const override { return prompt_logprobs_; }
  void ReadAttention(const Batch& batch, std::vector<AttentionPiece>& pieces) override {
    transformer_->ReadAttention(batch, pieces);
  }
  void ReadLogSumExp(const Batch& /*batch*/, std::span<float> values) override {
    transformer_->ReadLogSumExp(values);
  }
  absl::Status status() const override { return backend_.status(); }

  // The logits of the last step's sampled rows, [samples, vocabulary], copied to `logits`. Not
  // while it runs ahead.
  void CopyLogits(std::span<float> logits);

  // Between sequences only; off at first. Saves what the host takes between two steps, where the
  // device computes while the host goes on.
  void set_runs_ahead(bool runs_ahead) { limits_.runs_ahead = runs_ahead; }

  // Off: steps are never recorded. On where the backend can.
  void set_records(bool records) { records_ = records; }

  size_t kv_bytes() const { return transformer_->kv_bytes(); }

 private:
  TransformerRunner(Backend& backend, ModelConfig config, Weights weights)
      : backend_(backend), config_(std::move(config)), weights_(std::move(weights)) {}

  // The tokens that a step draws lie in one half of token_ids_, those of the step enqueued after it
  // in the other.
  size_t HalfBegin(int half) const { return half == 0 ? 0 : max_samples_; }
  DeviceSpan<TokenId> Half(int half, size_t samples) const {
    return token_ids_.As<TokenId>().subspan(HalfBegin(half), samples);
  }
  void Enqueue(const Batch& batch, int half);
  void StartCopies(const Batch& batch, const StepAhead::Answer& answer);
  void CopyHalf(int half, size_t samples);
  // Computes a decode step as the one of its shape that was recorded; false where it is no such.
  bool RunRepeated(const Batch& batch);
  void ScorePrompts(const Batch& batch);
  static void FinishResults(std::span<const LogprobsResult> results,
                            std::vector<TokenLogprobs>& logprobs);

  Backend& backend_;
  const ModelConfig config_;
  const Weights weights_;
  RunnerLimits limits_;
  bool records_ = true;
  std::unique_ptr<Transformer> transformer_;
  Buffer adjusted_;   // [samples, vocabulary]
  Buffer token_ids_;  // [2, samples]
  Buffer results_;    // LogprobsResult [rows + samples]: of scored rows, then of samples
  std::unique_ptr<DecodePadding> padding_;  // Null where the backend records nothing.
  DeviceSpan<const float> logits_;
  size_t max_samples_ = 0;
  std::optional<StepAhead> ahead_;
  const Batch* guess_ = nullptr;         // Enqueued ahead, to the half that is not half_.
  int half_ = 0;                         // Of what the step asked for last drew.
  std::vector<int32_t> places_;          // Of its samples in token_ids_.
  std::vector<TokenId> host_token_ids_;  // [2, samples]
  std::vector<LogprobsResult> host_results_;
  std::vector<TokenLogprobs> logprobs_;
  std::vector<TokenLogprobs> prompt_logprobs_;
  std::vector<int32_t> scored_rows_;   // Of the batch.
  std::vector<LogprobsRow> in_slice_;  // The same, with row in the slice that computes it.
};

}  // namespace vitrine
