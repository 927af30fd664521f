// Computes what was asked about the attention of a step and brings it to the host.
//
// Single rows, those of sequences that decode, are computed behind the attention of each layer, all
// sequences in one op: their keys, most of the work, have just been read and are still near. Chunks
// of prompts, whole rows and what combines layers come after the step.
//
// Over a bf16 cache the attention op may have summed approximate exponentials. Rows are then
// normalised by their own sums, and how far these were from 1 is reported. Results of single rows
// are divided when they are on the host; where rows become one, their sums are computed before.
//
// Work is cut into passes that fit fixed scratch memory: every pass recomputes the exact rows of
// some heads and rows, checks that they sum to one, reduces them and leaves the result in an
// output area, which is copied to the host in one go when it is full. So memory does not depend on
// what is asked, and the size of a pass changes no number: all are per row.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/attention_capture.h"
#include "model/attention_pass.h"
#include "model/batch.h"
#include "model/config.h"

namespace vitrine {

class AttentionReader {
 public:
  // For sequences of up to `max_positions`. `backend` and `config` must outlive the result.
  static absl::StatusOr<std::unique_ptr<AttentionReader>> Create(Backend& backend,
                                                                 const ModelConfig& config,
                                                                 int max_positions);

  // Heads that one plan may reduce to one row by pairs: all their rows are in memory together.
  static int MaxReducedHeads(const ModelConfig& config);

  // Around the layers of a step: Begin before them and ReadLayer behind the attention of each,
  // which read `q`, [rows, num_heads, head_dim], and left `log_sum_exp`, [rows, num_heads]; Read
  // after the step brings all that batch.traces asks for to the host, ordered by trace, and waits.
  // `capture` has kept the traces that are not read_by_layer(). All arguments outlive Read.
  void Begin(const Batch& batch, const KvStorage& kv, DeviceSpan<const float> alibi_slopes);
  std::span<const char> read_by_layer() const { return read_by_layer_; }  // [traces]
  void ReadLayer(int layer, const PagedBatch& batch, DeviceSpan<const float> q,
                 DeviceSpan<const float> log_sum_exp);
  void Read(const Batch& batch, const AttentionCapture& capture,
            std::vector<AttentionPiece>& pieces);

 private:
  using Pass = AttentionPass;

  // Where rows come from: what the attention of one layer, or of all, has left.
  struct Source {
    DeviceSpan<const float> q;
    DeviceSpan<const float> log_sum_exp;
    const PagedBatch* batch = nullptr;
    int first_layer = 0;
    int first_row = 0;  // Of the run, in `batch`.
  };

  AttentionReader(Backend& backend, const ModelConfig& config)
      : backend_(backend), config_(config) {}

  void JoinRuns(const Batch& batch, size_t first);
  void Normalize(const Batch& batch, const Source& source, DeviceSpan<float> log_sum_exp);
  void SumRun(const Batch& batch, const TracedRows& run, const Source& source);
  void TakeSums();
  void ReadRun(const Batch& batch, int trace, const Source& source,
               std::vector<AttentionPiece>& pieces);
  void AddPass(const AttentionPlan& plan, const AttentionPiece& piece, const Source& source,
               std::vector<AttentionPiece>& pieces);
  void ListItems(Pass& pass, const Source& source) const;
  void ListSpans(Pass& pass) const;
  bool PlaceOutputs(Pass& pass);
  void AddItem(Pass& pass, size_t layer, size_t head, int row, int position) const;
  void Enqueue(const Pass& pass, const Source& source);
  void EnqueueLayers(const Pass& outer, const Source& source);
  void ComputeRows(std::span<const AttentionItem> items, int key_columns, AttentionStage stage,
                   const Source& source);
  void SumRows(const Pass& pass);
  DeviceSpan<const float> LogSumExp(std::span<const int32_t> ids, const Source& source);
  void Reduce(const Pass& pass, DeviceSpan<const float> input, DeviceSpan<const float> log_sum_exp,
              size_t first, size_t results);
  void Drain(std::vector<AttentionPiece>& pieces);

  Backend& backend_;
  const ModelConfig& config_;
  std::vector<int32_t> windows_;  // [layers]
  Buffer scratch_;                // Rows of one pass.
  Buffer layers_;                 // [layers, keys]: rows with their heads reduced.
  Buffer layer_stats_;            // [layers, kAttentionStats] of these.
  Buffer log_sum_exp_;            // [results, members] of one pass.
  Buffer outputs_;
  size_t outputs_used_ = 0;
  std::deque<Pass> passes_;  // Not yet on the host.

  // Of the step under way.
  const KvStorage* kv_ = nullptr;
  DeviceSpan<const float> alibi_slopes_;
  std::vector<char> read_by_layer_;  // [traces]: part of a pass since Begin.
  bool is_approximate_ = false;  // Are the attention op's sums; then rows are divided by their own.
  // [layers, captured, num_heads]; the second is empty where the attention op's own sums are exact
  // enough, or no run needs its rows' before them.
  std::vector<float> host_log_sum_exp_;
  std::vector<float> lse_deltas_;
};

}  // namespace vitrine
