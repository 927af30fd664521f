// Computes what was asked about the attention of a step, after the step, and brings it to the host.
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
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/attention_capture.h"
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

  // What batch.traces asks for; `capture` has just seen the step, whose keys are in `kv`. Waits.
  void Read(const Batch& batch, const AttentionCapture& capture, const KvStorage& kv,
            DeviceSpan<const float> alibi_slopes, std::vector<AttentionPiece>& pieces);

 private:
  // One pass: a rectangle of cells of some rows of one run, and the host arrays of its ops.
  struct Pass {
    const AttentionPlan* plan = nullptr;
    AttentionPiece piece;
    int members = 1;                          // Rows that become one.
    std::vector<AttentionItem> items;         // [results, members]
    std::vector<AttentionRowKeys> item_keys;  // [results, members]
    std::vector<AttentionRowKeys> keys;       // [results]
    std::vector<int32_t> log_sum_exp_ids;     // [results, members]
    std::vector<KeyRange> span_ranges;        // The plan's, then all keys where that is the sum.
    std::vector<int32_t> span_begin;
    bool sums_in_spans = false;  // The sum of a row is its last span.
    bool is_inner = false;       // Leaves layers_, for the pass that reduces these.

    // Places in the output area, in floats.
    size_t stats = 0;
    size_t top_keys = 0;
    size_t top_values = 0;
    size_t tail_mass = 0;
    size_t span_mass = 0;
    size_t row_sums = 0;
    size_t values = 0;
    size_t results() const { return keys.size(); }
  };

  // The step that is being read.
  struct Source {
    const AttentionCapture& capture;
    const KvStorage& kv;
    DeviceSpan<const float> alibi_slopes;
    int first_traced = 0;  // Row of the traced batch at which the run begins.
  };

  AttentionReader(Backend& backend, const ModelConfig& config)
      : backend_(backend), config_(config) {}

  void Normalize(const Batch& batch, const Source& source);
  void SumRun(const Batch& batch, const TracedRows& run, const Source& source);
  void TakeSums();
  void ReadRun(const Batch& batch, int trace, const Source& source,
               std::vector<AttentionPiece>& pieces);
  void AddPass(const AttentionPlan& plan, const AttentionPiece& piece, const Source& source,
               std::vector<AttentionPiece>& pieces);
  void ListItems(Pass& pass, const Source& source) const;
  void ListSpans(Pass& pass) const;
  bool PlaceOutputs(Pass& pass);
  void Enqueue(Pass& pass, const Source& source);
  void EnqueueLayers(const Pass& outer, const Source& source);
  void ComputeRows(const Pass& pass, AttentionStage stage, const Source& source);
  void SumRows(const Pass& pass);
  void Reduce(const Pass& pass, DeviceSpan<const float> input);
  void Drain(std::vector<AttentionPiece>& pieces);
  void DivideResult(const Pass& pass, size_t index, float sum, float* memory) const;
  AttentionPiece Collect(const Pass& pass, const std::shared_ptr<float[]>& memory) const;

  Backend& backend_;
  const ModelConfig& config_;
  std::vector<int32_t> windows_;  // [layers]
  Buffer scratch_;                // Rows of one pass.
  Buffer layers_;                 // [layers, keys]: rows with their heads reduced.
  Buffer layer_stats_;            // [layers, kAttentionStats] of these.
  Buffer log_sum_exp_;            // [results, members] of one pass.
  Buffer outputs_;
  size_t outputs_used_ = 0;
  std::deque<Pass> passes_;  // Enqueued, not yet on the host.

  bool is_approximate_ = false;  // Are the attention op's sums; then rows are divided by their own.
  // Of the step that is being read, [layers, traced, num_heads]; the second is empty where the
  // attention op's own sums are exact enough, or no run needs its rows' before them.
  std::vector<float> host_log_sum_exp_;
  std::vector<float> lse_deltas_;
};

}  // namespace vitrine
