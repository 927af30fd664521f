// What a step leaves behind for those who look at its attention: the queries of the traced rows and
// every row's log-sum-exp. A step without traced rows runs exactly the same ops, and the ops that
// it shares with a traced one get the same arguments, so tracing cannot change a token.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/batch.h"
#include "model/config.h"

namespace vitrine {

class AttentionCapture {
 public:
  // Steps have at most `max_rows` rows, `max_traced_rows` of them traced and `max_certified_rows`
  // certified. `backend` and `config` must outlive the result.
  struct Limits {
    int max_rows = 0;
    int max_traced_rows = 0;
    int max_certified_rows = 0;
  };
  static absl::StatusOr<std::unique_ptr<AttentionCapture>> Create(Backend& backend,
                                                                  const ModelConfig& config,
                                                                  const Limits& limits);

  // Around the layers of a forward pass. `batch` stays unchanged until the next Begin. Traces that
  // are `read_by_layer`, [batch.traces], need not be kept.
  void Begin(const Batch& batch, std::span<const char> read_by_layer);
  // Where the attention of a layer writes its log-sum-exp: [rows, num_heads].
  DeviceSpan<float> LogSumExp(int layer) const;
  // Behind the attention of a layer; `q` is what it read: [rows, num_heads, head_dim].
  void KeepLayer(int layer, DeviceSpan<const float> q);
  void End();

  // What KeepLayer has kept, for AttentionRows: rows are the kept traces' rows, in order.
  const PagedBatch& traced() const { return traced_; }
  DeviceSpan<const float> queries() const { return queries_.As<float>(); }  // [layers, traced, ...]
  DeviceSpan<float> log_sum_exp() const { return kept_.As<float>(); }  // [layers, traced, heads]

  // The certified rows' log-sum-exp, [certified, layers, num_heads]. Waits for the step.
  void ReadLogSumExp(std::span<float> values) const;

 private:
  AttentionCapture(Backend& backend, const ModelConfig& config, const Limits& limits)
      : backend_(backend), config_(config), limits_(limits) {}

  void CollectTraced(const Batch& batch, std::span<const char> read_by_layer);
  void CollectKept(const Batch& batch);

  Backend& backend_;
  const ModelConfig& config_;
  const Limits limits_;
  Buffer queries_;      // [layers, traced, num_heads, head_dim]
  Buffer log_sum_exp_;  // [layers, max_rows, num_heads]
  Buffer kept_;         // [layers, traced, num_heads], then [certified, layers, num_heads]

  // Of the step under way.
  std::vector<int32_t> traced_rows_;  // Rows of the batch.
  std::vector<int32_t> kept_rows_;    // Of log_sum_exp_ as [layers * max_rows, num_heads].
  std::vector<int32_t> row_begin_;
  std::vector<int32_t> first_position_;
  std::vector<int32_t> block_table_;
  PagedBatch traced_;
  size_t certified_ = 0;
};

}  // namespace vitrine
