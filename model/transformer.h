// The forward pass of a decoder-only transformer over a backend's ops.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/attention_capture.h"
#include "model/attention_reader.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/expert_routing.h"
#include "model/weights.h"

namespace vitrine {

struct TransformerLimits {
  int max_rows = 0;       // Rows of one step.
  int max_samples = 0;    // Rows whose logits are held at a time.
  int max_positions = 0;  // Positions of one sequence.
  int num_blocks = 0;     // KV blocks.
  DType kv_dtype = DType::kBF16;
  int max_traced_rows = 0;  // Rows of one step whose attention may be read; 0: none, ever.
};

class Transformer {
 public:
  // Allocates everything a step needs. `backend` and `weights` must outlive the result.
  static absl::StatusOr<std::unique_ptr<Transformer>> Create(Backend& backend,
                                                             const ModelConfig& config,
                                                             const Weights& weights,
                                                             const TransformerLimits& limits);

  // Enqueues one step, whose tokens may be among `drawn`, see EmbedArgs. `batch` must stay
  // unchanged as long as kernels/backend.h says.
  void Forward(const Batch& batch, DeviceSpan<const TokenId> drawn = {});

  // Enqueues the logits of at most max_samples rows of the last batch, [rows, vocabulary]. `rows`
  // is host memory and stays unchanged as long; the result is valid until the next call.
  DeviceSpan<const float> Logits(std::span<const int32_t> rows);

  // Of the last step, and before the next: the attention that batch.traces asks for, and the
  // log-sum-exp of batch.certified_rows, [certified, layers, num_heads]. Both wait.
  void ReadAttention(const Batch& batch, std::vector<AttentionPiece>& pieces);
  void ReadLogSumExp(std::span<float> values) const { capture_->ReadLogSumExp(values); }

  // Where every step puts the logits of its first `samples` sampled rows: [samples, vocabulary].
  DeviceSpan<const float> logits(int samples) const;

  size_t kv_bytes() const { return kv_->bytes(); }

 private:
  Transformer(Backend& backend, const ModelConfig& config, const Weights& weights)
      : backend_(backend), config_(config), weights_(weights) {}

  struct RopeTable {
    Buffer cosines;  // [positions, rotary_dim / 2]
    Buffer sines;    // [positions, rotary_dim / 2]
  };
  absl::Status Allocate(const TransformerLimits& limits);
  absl::Status AllocateHead(int max_samples);
  absl::Status AllocateExperts(int max_rows);
  absl::Status FillRopeTable(const std::vector<double>& frequencies, float factor, int positions,
                             RopeTable& table);
  absl::Status CopyAlibiSlopes();

  void RunLayer(int index, int rows);
  void Attend(int index, int rows);
  void AddAttention(const LayerWeights& layer, int rows);
  void ExpandMlp(const LayerWeights& layer, int rows);
  // A mixture in place of the feed-forward block. Waits for the router's logits, as the host
  // decides which rows each expert computes.
  void RunExperts(const LayerWeights& layer, int rows);
  void RunExpert(const LayerWeights& layer, const ExpertWeights& expert,
                 const ExpertRouting::Rows& rows);
  // What a block reads: the residual stream behind a norm, which is the stream from then on where
  // norms are placed in it.
  void NormalizeStream(const Buffer& weight, const Buffer& bias, int rows);
  // Without a norm weight the rows pass as they are.
  void Normalize(const Buffer& input, const Buffer& weight, const Buffer& bias, int rows,
                 RowBuffer& output, DeviceSpan<float> normalized = {});
  void AddToResidual(const RowBuffer& input, const PackedMatrix& weight, const Buffer& bias,
                     const Buffer& post_norm, int rows);

  Backend& backend_;
  const ModelConfig& config_;
  const Weights& weights_;

  std::unique_ptr<KvStorage> kv_;
  RopeTable rope_;
  RopeTable local_rope_;
  Buffer alibi_slopes_;  // [num_heads]
  Buffer residual_;      // [rows, d_model]
  Buffer q_;             // [rows, num_heads, head_dim]
  Buffer qkv_;           // [rows, (heads + 2 kv_heads) * head_dim], with QkNorm::kAllHeads
  Buffer block_output_;  // [rows, d_model], with norms behind blocks, or experts
  Buffer gathered_;      // [samples, d_model]
  Buffer projected_;     // [samples, d_embedding], where the head needs it
  Buffer logits_;        // [samples, vocabulary]
  std::unique_ptr<AttentionCapture> capture_;    // Where rows may be traced.
  std::unique_ptr<AttentionReader> reader_;      // Where rows may be traced.
  std::unique_ptr<RowBuffer> normalized_;        // [rows, d_model]
  std::unique_ptr<RowBuffer> attended_;          // [rows, num_heads * head_dim]
  std::unique_ptr<RowBuffer> hidden_;            // [rows, d_ff]
  std::unique_ptr<RowBuffer> final_normalized_;  // [samples, d_model]
  std::unique_ptr<RowBuffer> head_input_;        // [samples, d_embedding], where it is projected
  PagedBatch paged_;

  // Of a mixture of experts.
  std::optional<ExpertRouting> routing_;
  std::vector<float> host_logits_;            // [rows, router columns]
  Buffer router_logits_;                      // [rows, router columns]
  Buffer stream_copy_;                        // [rows, d_model], what experts read
  Buffer expert_input_;                       // [rows, d_model], of the rows of one expert
  std::unique_ptr<RowBuffer> expert_hidden_;  // [rows, experts.d_ff]
  std::unique_ptr<RowBuffer> shared_hidden_;  // [rows, experts.d_shared], or null
};

}  // namespace vitrine
