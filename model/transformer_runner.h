// The real Runner: one forward pass and one draw per step.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/decode_padding.h"
#include "model/runner.h"
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

  // The logits of the last step's sampled rows, [samples, vocabulary], copied to `logits`.
  void CopyLogits(std::span<float> logits);

  // Off: steps are never recorded. On where the backend can.
  void set_records(bool records) { records_ = records; }

  size_t kv_bytes() const { return transformer_->kv_bytes(); }

 private:
  TransformerRunner(Backend& backend, ModelConfig config, Weights weights)
      : backend_(backend), config_(std::move(config)), weights_(std::move(weights)) {}

  // Computes a decode step as the one of its shape that was recorded; false where it is no such.
  bool RunRepeated(const Batch& batch);
  void ScorePrompts(const Batch& batch);
  void CollectLogprobs(size_t first, size_t count, std::vector<TokenLogprobs>& logprobs);

  Backend& backend_;
  const ModelConfig config_;
  const Weights weights_;
  RunnerLimits limits_;
  bool records_ = true;
  std::unique_ptr<Transformer> transformer_;
  Buffer adjusted_;   // [samples, vocabulary]
  Buffer token_ids_;  // [samples]
  Buffer results_;    // LogprobsResult [rows + samples]: of scored rows, then of samples
  std::unique_ptr<DecodePadding> padding_;  // Null where the backend records nothing.
  DeviceSpan<const float> logits_;
  size_t max_samples_ = 0;
  std::vector<LogprobsResult> host_results_;
  std::vector<TokenLogprobs> logprobs_;
  std::vector<TokenLogprobs> prompt_logprobs_;
  std::vector<int32_t> scored_rows_;   // Of the batch.
  std::vector<LogprobsRow> in_slice_;  // The same, with row in the slice that computes it.
};

}  // namespace vitrine
