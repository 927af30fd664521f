#include "model/attention_capture.h"

#include "model/status.h"

namespace vitrine {
namespace {

size_t FloatBytes(int64_t rows, int64_t columns) {
  return static_cast<size_t>(rows) * static_cast<size_t>(columns) * sizeof(float);
}

}  // namespace

absl::StatusOr<std::unique_ptr<AttentionCapture>> AttentionCapture::Create(
    Backend& backend, const ModelConfig& config, const Limits& limits) {
  std::unique_ptr<AttentionCapture> capture(new AttentionCapture(backend, config, limits));
  const int64_t layers = config.num_layers;
  const int64_t kept = layers * (int64_t{limits.max_traced_rows} + limits.max_certified_rows);
  VITRINE_ASSIGN_OR_RETURN(capture->queries_,
                           backend.Allocate(FloatBytes(layers * limits.max_traced_rows,
                                                       config.num_heads * config.head_dim)));
  VITRINE_ASSIGN_OR_RETURN(capture->log_sum_exp_, backend.Allocate(FloatBytes(
                                                      layers * limits.max_rows, config.num_heads)));
  VITRINE_ASSIGN_OR_RETURN(capture->kept_, backend.Allocate(FloatBytes(kept, config.num_heads)));
  return capture;
}

void AttentionCapture::Begin(const Batch& batch, std::span<const char> read_by_layer) {
  VITRINE_CHECK_LE(batch.rows(), limits_.max_rows);
  VITRINE_CHECK_LE(static_cast<int>(batch.certified_rows.size()), limits_.max_certified_rows);
  CollectTraced(batch, read_by_layer);
  VITRINE_CHECK_LE(static_cast<int>(traced_rows_.size()), limits_.max_traced_rows);
  CollectKept(batch);
}

// The traced rows as a batch of their own, whose sequences are the runs of rows.
void AttentionCapture::CollectTraced(const Batch& batch, std::span<const char> read_by_layer) {
  traced_rows_.clear();
  row_begin_.assign(1, 0);
  first_position_.clear();
  block_table_.clear();
  const auto width = static_cast<ptrdiff_t>(batch.max_blocks);
  for (size_t trace = 0; trace < batch.traces.size(); ++trace) {
    if (read_by_layer[trace] != 0) continue;
    const TracedRows& run = batch.traces[trace];
    const auto sequence = static_cast<size_t>(run.sequence);
    for (int32_t row = 0; row < run.rows; ++row) traced_rows_.push_back(run.first_row + row);
    row_begin_.push_back(static_cast<int32_t>(traced_rows_.size()));
    first_position_.push_back(batch.first_position[sequence] + run.first_row -
                              batch.row_begin[sequence]);
    const auto blocks = batch.block_table.begin() + run.sequence * width;
    block_table_.insert(block_table_.end(), blocks, blocks + width);
  }
  traced_ = {row_begin_, first_position_, block_table_, batch.max_blocks};
}

void AttentionCapture::CollectKept(const Batch& batch) {
  kept_rows_.clear();
  certified_ = batch.certified_rows.size();
  for (const int32_t row : batch.certified_rows) {
    for (int layer = 0; layer < config_.num_layers; ++layer) {
      kept_rows_.push_back(layer * limits_.max_rows + row);
    }
  }
}

DeviceSpan<float> AttentionCapture::LogSumExp(int layer) const {
  const size_t size =
      static_cast<size_t>(limits_.max_rows) * static_cast<size_t>(config_.num_heads);
  return log_sum_exp_.As<float>().subspan(static_cast<size_t>(layer) * size, size);
}

void AttentionCapture::KeepLayer(int layer, DeviceSpan<const float> q) {
  if (traced_rows_.empty()) return;
  const int columns = config_.num_heads * config_.head_dim;
  const size_t size = traced_rows_.size() * static_cast<size_t>(columns);
  backend_.GatherRows(
      {.input = q,
       .row_ids = traced_rows_,
       .columns = columns,
       .output = queries_.As<float>().subspan(static_cast<size_t>(layer) * size, size)});
  const size_t heads = traced_rows_.size() * static_cast<size_t>(config_.num_heads);
  backend_.GatherRows(
      {.input = LogSumExp(layer),
       .row_ids = traced_rows_,
       .columns = config_.num_heads,
       .output = kept_.As<float>().subspan(static_cast<size_t>(layer) * heads, heads)});
}

void AttentionCapture::End() {
  if (kept_rows_.empty()) return;
  const size_t first = traced_rows_.size() * static_cast<size_t>(config_.num_layers) *
                       static_cast<size_t>(config_.num_heads);
  backend_.GatherRows({.input = log_sum_exp_.As<float>(),
                       .row_ids = kept_rows_,
                       .columns = config_.num_heads,
                       .output = kept_.As<float>().subspan(
                           first, kept_rows_.size() * static_cast<size_t>(config_.num_heads))});
}

void AttentionCapture::ReadLogSumExp(std::span<float> values) const {
  const auto heads = static_cast<size_t>(config_.num_heads);
  const auto layers = static_cast<size_t>(config_.num_layers);
  const size_t size = certified_ * layers * heads;
  VITRINE_CHECK_EQ(values.size(), size);
  const DeviceSpan<const float> kept = kept_.As<float>();
  backend_.CopyToHost(kept.subspan(traced_rows_.size() * layers * heads, size), values);
}

}  // namespace vitrine
