// The argument checks of every op, in one place, so that all backends share one contract.
#include "kernels/backend.h"

#include <algorithm>

namespace vitrine {
namespace {

size_t Count(int64_t rows, int64_t columns) {
  VITRINE_CHECK_LE(0, rows);
  VITRINE_CHECK_LE(0, columns);
  return static_cast<size_t>(rows) * static_cast<size_t>(columns);
}

void CheckOptional(DeviceSpan<const float> span, int64_t size) {
  if (!span.empty()) VITRINE_CHECK_EQ(span.size(), static_cast<size_t>(size));
}

void CheckRows(const RowBuffer* rows, int count, int64_t columns) {
  VITRINE_CHECK(rows != nullptr);
  VITRINE_CHECK_LE(count, rows->max_rows());
  VITRINE_CHECK_EQ(int64_t{rows->columns()}, columns);
}

void CheckBatch(const PagedBatch* batch) {
  VITRINE_CHECK(batch != nullptr);
  const int sequences = batch->sequences();
  VITRINE_CHECK_EQ(batch->row_begin.size(), static_cast<size_t>(sequences) + 1);
  VITRINE_CHECK_EQ(batch->block_table.size(), Count(sequences, batch->max_blocks));
}

void CheckTarget(const RopeKvTarget& target) {
  CheckBatch(target.batch);
  VITRINE_CHECK(target.kv != nullptr);
  const KvStorageSpec& spec = target.kv->spec();
  VITRINE_CHECK_LT(target.layer, spec.num_layers);
  VITRINE_CHECK_EQ(target.num_heads % spec.num_kv_heads, 0);
  VITRINE_CHECK_EQ(target.rotary_dim % 2, 0);
  VITRINE_CHECK_LE(target.rotary_dim, spec.head_dim);
  VITRINE_CHECK_EQ(target.cosines.size(), target.sines.size());
  VITRINE_CHECK_LE(Count(target.batch->rows(), int64_t{target.num_heads} * spec.head_dim),
                   target.q.size());
  VITRINE_CHECK_EQ(target.q_norm.empty(), target.k_norm.empty());
  VITRINE_CHECK(target.clip >= 0.0f && (target.clip == 0.0f || target.q_norm.empty()));
}

// A norm of q or k has weights for one head or for all heads of a row. Where heads are computed one
// by one, none may span them.
void CheckHeadNorm(HeadNormKind kind, DeviceSpan<const float> weight, DeviceSpan<const float> bias,
                   int heads, int head_dim, bool one_by_one) {
  if (!bias.empty()) {
    VITRINE_CHECK(kind == HeadNormKind::kLayer);
    VITRINE_CHECK_EQ(bias.size(), weight.size());
  }
  if (weight.empty() || weight.size() == Count(1, head_dim)) return;
  VITRINE_CHECK_EQ(weight.size(), Count(heads, head_dim));
  VITRINE_CHECK(kind == HeadNormKind::kLayer || !one_by_one);
}

void CheckHeadNorms(const RopeKvTarget& target, bool one_by_one) {
  const KvStorageSpec& spec = target.kv->spec();
  CheckHeadNorm(target.norm_kind, target.q_norm, target.q_norm_bias, target.num_heads,
                spec.head_dim, one_by_one);
  CheckHeadNorm(target.norm_kind, target.k_norm, target.k_norm_bias, spec.num_kv_heads,
                spec.head_dim, one_by_one);
}

}  // namespace

absl::StatusOr<Buffer> Backend::Allocate(size_t bytes) { return DoAllocate(bytes); }

absl::StatusOr<std::unique_ptr<PackedMatrix>> Backend::PackMatrix(const MatrixSource& source) {
  VITRINE_CHECK(!source.parts.empty());
  for (const MatrixPart& part : source.parts) {
    VITRINE_CHECK(part.data != nullptr);
    VITRINE_CHECK_LT(0, part.rows);
    VITRINE_CHECK_EQ(part.columns, source.parts[0].columns);
    VITRINE_CHECK_EQ(part.columns % TraitsOf(part.dtype).block_columns, 0);
    if (source.layout == RowLayout::kHeads) VITRINE_CHECK_EQ(part.rows % source.head_dim, 0);
  }
  if (source.layout == RowLayout::kGateUp) {
    VITRINE_CHECK_EQ(source.parts.size(), size_t{2});
    VITRINE_CHECK_EQ(source.parts[0].rows, source.parts[1].rows);
  }
  if (source.layout == RowLayout::kHeads) VITRINE_CHECK_EQ(source.parts.size(), size_t{3});
  return DoPackMatrix(source);
}

absl::StatusOr<std::unique_ptr<RowBuffer>> Backend::CreateRowBuffer(const RowBufferSpec& spec) {
  VITRINE_CHECK_LT(0, spec.max_rows);
  VITRINE_CHECK(!spec.consumers.empty());
  for (const PackedMatrix* consumer : spec.consumers) {
    VITRINE_CHECK_EQ(consumer->columns(), int64_t{spec.columns});
  }
  return DoCreateRowBuffer(spec);
}

absl::StatusOr<std::unique_ptr<KvStorage>> Backend::CreateKvStorage(const KvStorageSpec& spec) {
  VITRINE_CHECK_LT(0, spec.num_layers);
  VITRINE_CHECK_LT(0, spec.num_kv_heads);
  VITRINE_CHECK_LT(0, spec.head_dim);
  VITRINE_CHECK_LT(0, spec.num_blocks);
  return DoCreateKvStorage(spec);
}

void Backend::Embed(const EmbedArgs& args) {
  VITRINE_CHECK(args.table != nullptr);
  VITRINE_CHECK(args.table->layout() == RowLayout::kStacked);
  for (const int32_t id : args.token_ids) {
    VITRINE_CHECK(id < args.table->rows());
    if (id < 0) VITRINE_CHECK_LT(static_cast<size_t>(~id), args.drawn.size());
  }
  VITRINE_CHECK_LE(Count(static_cast<int64_t>(args.token_ids.size()), args.table->columns()),
                   args.output.size());
  if (!args.position_table.empty()) CheckBatch(args.batch);
  DoEmbed(args);
}

void Backend::RmsNorm(const RmsNormArgs& args) {
  VITRINE_CHECK(args.output != nullptr);
  const int columns = args.output->columns();
  CheckRows(args.output, args.rows, columns);
  VITRINE_CHECK_EQ(args.weight.size(), static_cast<size_t>(columns));
  VITRINE_CHECK_LE(Count(args.rows, columns), args.input.size());
  DoRmsNorm(args);
}

void Backend::LayerNorm(const LayerNormArgs& args) {
  VITRINE_CHECK(args.output != nullptr);
  const int columns = args.output->columns();
  CheckRows(args.output, args.rows, columns);
  VITRINE_CHECK_EQ(args.weight.size(), static_cast<size_t>(columns));
  CheckOptional(args.bias, columns);
  VITRINE_CHECK_LE(Count(args.rows, columns), args.input.size());
  if (!args.normalized.empty()) {
    VITRINE_CHECK_LE(Count(args.rows, columns), args.normalized.size());
  }
  DoLayerNorm(args);
}

void Backend::RmsNormAdd(const RmsNormAddArgs& args) {
  VITRINE_CHECK_EQ(args.weight.size(), static_cast<size_t>(args.columns));
  VITRINE_CHECK_LE(Count(args.rows, args.columns), args.input.size());
  VITRINE_CHECK_LE(Count(args.rows, args.columns), args.output.size());
  DoRmsNormAdd(args);
}

void Backend::PackRows(const PackRowsArgs& args) {
  VITRINE_CHECK(args.output != nullptr);
  CheckRows(args.output, args.rows, args.output->columns());
  VITRINE_CHECK_LE(Count(args.rows, args.output->columns()), args.input.size());
  DoPackRows(args);
}

void Backend::MatMul(const MatMulArgs& args) {
  VITRINE_CHECK(args.weight != nullptr);
  VITRINE_CHECK(args.weight->layout() == RowLayout::kStacked);
  CheckRows(args.input, args.rows, args.weight->columns());
  CheckOptional(args.bias, args.weight->rows());
  VITRINE_CHECK(args.softcap == 0.0f || !args.add_to_output);
  VITRINE_CHECK_LE(Count(args.rows, args.weight->rows()), args.output.size());
  DoMatMul(args);
}

void Backend::ActivatedMatMul(const ActivatedMatMulArgs& args) {
  VITRINE_CHECK(args.weight != nullptr);
  VITRINE_CHECK(args.weight->layout() != RowLayout::kHeads);
  CheckRows(args.input, args.rows, args.weight->columns());
  CheckOptional(args.bias, args.weight->rows());
  const bool gated = args.weight->layout() == RowLayout::kGateUp;
  CheckRows(args.output, args.rows, gated ? args.weight->rows() / 2 : args.weight->rows());
  DoActivatedMatMul(args);
}

void Backend::RopeWriteKv(const RopeWriteKvArgs& args) {
  CheckTarget(args.target);
  const KvStorageSpec& spec = args.target.kv->spec();
  const int64_t columns = (int64_t{args.target.num_heads} + 2 * spec.num_kv_heads) * spec.head_dim;
  VITRINE_CHECK_LE(Count(args.target.batch->rows(), columns), args.qkv.size());
  CheckHeadNorms(args.target, /*one_by_one=*/false);
  DoRopeWriteKv(args);
}

void Backend::MatMulRopeWriteKv(const MatMulRopeWriteKvArgs& args) {
  CheckTarget(args.target);
  VITRINE_CHECK(args.weight != nullptr);
  VITRINE_CHECK(args.weight->layout() == RowLayout::kHeads);
  CheckRows(args.input, args.target.batch->rows(), args.weight->columns());
  CheckOptional(args.bias, args.weight->rows());
  const KvStorageSpec& spec = args.target.kv->spec();
  VITRINE_CHECK_EQ(args.weight->rows(),
                   (int64_t{args.target.num_heads} + 2 * spec.num_kv_heads) * spec.head_dim);
  CheckHeadNorms(args.target, /*one_by_one=*/true);
  DoMatMulRopeWriteKv(args);
}

void Backend::PagedAttention(const PagedAttentionArgs& args) {
  CheckBatch(args.batch);
  VITRINE_CHECK(args.kv != nullptr);
  const KvStorageSpec& spec = args.kv->spec();
  VITRINE_CHECK_LT(args.layer, spec.num_layers);
  VITRINE_CHECK_EQ(args.num_heads % spec.num_kv_heads, 0);
  const int rows = args.batch->rows();
  const int64_t columns = int64_t{args.num_heads} * spec.head_dim;
  CheckRows(args.output, rows, columns);
  VITRINE_CHECK_LE(Count(rows, columns), args.q.size());
  CheckOptional(args.sinks, args.num_heads);
  CheckOptional(args.alibi_slopes, args.num_heads);
  if (!args.log_sum_exp.empty()) {
    VITRINE_CHECK_LE(Count(rows, args.num_heads), args.log_sum_exp.size());
  }
  DoPagedAttention(args);
}

void Backend::AttentionRows(const AttentionRowsArgs& args) {
  CheckBatch(args.batch);
  VITRINE_CHECK(args.kv != nullptr);
  const KvStorageSpec& spec = args.kv->spec();
  VITRINE_CHECK_EQ(args.num_heads % spec.num_kv_heads, 0);
  VITRINE_CHECK_LE(args.batch->rows(), args.row_capacity);
  VITRINE_CHECK(args.windows.empty() || args.windows.size() == Count(spec.num_layers, 1));
  CheckOptional(args.alibi_slopes, args.num_heads);
  VITRINE_CHECK_LE(0, args.first_layer);
  int slices = 0;
  for (const AttentionItem& item : args.items) {
    VITRINE_CHECK(item.row >= 0 && item.row < args.batch->rows());
    VITRINE_CHECK(item.layer >= args.first_layer && item.layer < spec.num_layers);
    VITRINE_CHECK(item.head >= 0 && item.head < args.num_heads);
    slices = std::max(slices, item.layer - args.first_layer + 1);
  }
  const size_t rows = Count(slices, args.row_capacity);
  VITRINE_CHECK_LE(rows * Count(args.num_heads, spec.head_dim), args.q.size());
  VITRINE_CHECK_LE(rows * Count(args.num_heads, 1), args.log_sum_exp.size());
  VITRINE_CHECK_LE(Count(static_cast<int64_t>(args.items.size()), args.key_columns),
                   args.output.size());
  DoAttentionRows(args);
}

void Backend::AttentionReduce(const AttentionReduceArgs& args) {
  VITRINE_CHECK_LT(0, args.members);
  const auto rows = static_cast<int64_t>(args.rows.size());
  VITRINE_CHECK_LE(Count(rows * args.members, args.key_columns), args.input.size());
  for (const AttentionRowKeys& row : args.rows) {
    VITRINE_CHECK(row.first_key >= 0 && row.first_key <= row.position);
    VITRINE_CHECK_LT(row.position, args.key_columns);
  }
  const auto check_output = [&](size_t size, int64_t per_row) {
    if (size != 0) VITRINE_CHECK_LE(Count(rows, per_row), size);
  };
  check_output(args.combined.size(), args.key_columns);
  check_output(args.stats.size(), kAttentionStats);
  check_output(args.top_keys.size(), args.top_k);
  check_output(args.top_values.size(), args.top_k);
  check_output(args.tail_mass.size(), 1);
  check_output(args.span_mass.size(), static_cast<int64_t>(args.span_begin.size()) - 1);
  if (!args.stats.empty()) {
    VITRINE_CHECK_LE(Count(rows, args.members), args.log_sum_exp.size());
  }
  DoAttentionReduce(args);
}

void Backend::GatherRows(const GatherRowsArgs& args) {
  VITRINE_CHECK_LT(0, args.columns);
  for (const int32_t id : args.row_ids) {
    VITRINE_CHECK_LE(Count(int64_t{id} + 1, args.columns), args.input.size());
  }
  VITRINE_CHECK_LE(Count(static_cast<int64_t>(args.row_ids.size()), args.columns),
                   args.output.size());
  DoGatherRows(args);
}

void Backend::ScatterAdd(const ScatterAddArgs& args) {
  VITRINE_CHECK_LT(0, args.columns);
  VITRINE_CHECK_EQ(args.row_ids.size(), args.scales.size());
  VITRINE_CHECK_LE(Count(static_cast<int64_t>(args.row_ids.size()), args.columns),
                   args.input.size());
  for (const int32_t id : args.row_ids) {
    VITRINE_CHECK_LE(Count(int64_t{id} + 1, args.columns), args.output.size());
  }
  DoScatterAdd(args);
}

void Backend::DoScatterAdd(const ScatterAddArgs&) { VITRINE_CHECK(!"an op of other backends"); }

void Backend::AdjustLogits(const AdjustLogitsArgs& args) {
  VITRINE_CHECK_LT(0, args.vocabulary);
  VITRINE_CHECK_LE(Count(static_cast<int64_t>(args.adjustments.size()), args.vocabulary),
                   args.output.size());
  const auto check_id = [&](int32_t id) { VITRINE_CHECK(0 <= id && id < args.vocabulary); };
  for (const LogitAdjustment& adjustment : args.adjustments) {
    VITRINE_CHECK_LE(0, adjustment.row);
    VITRINE_CHECK_LE(Count(int64_t{adjustment.row} + 1, args.vocabulary), args.logits.size());
    for (const TokenBias& entry : adjustment.biases) check_id(entry.token_id);
    for (const SeenToken& token : adjustment.seen) check_id(token.token_id);
    std::ranges::for_each(adjustment.allowed, check_id);
    std::ranges::for_each(adjustment.banned, check_id);
    std::ranges::for_each(adjustment.withheld, check_id);
  }
  DoAdjustLogits(args);
}

void Backend::Sample(const SampleArgs& args) {
  VITRINE_CHECK_LT(0, args.vocabulary);
  VITRINE_CHECK_LE(args.vocabulary, kMaxSampleVocabulary);
  VITRINE_CHECK_LE(Count(static_cast<int64_t>(args.rows.size()), args.vocabulary),
                   args.logits.size());
  for (const SampleRow& row : args.rows) {
    VITRINE_CHECK_LE(Count(int64_t{row.adjusted_row} + 1, args.vocabulary), args.adjusted.size());
  }
  VITRINE_CHECK_LE(args.rows.size(), args.token_ids.size());
  DoSample(args);
}

void Backend::Logprobs(const LogprobsArgs& args) {
  VITRINE_CHECK_LT(0, args.vocabulary);
  VITRINE_CHECK_LE(args.vocabulary, kMaxSampleVocabulary);
  VITRINE_CHECK_LE(args.rows.size(), args.output.size());
  for (const LogprobsRow& row : args.rows) {
    VITRINE_CHECK_LE(0, row.row);
    VITRINE_CHECK_LE(Count(int64_t{row.row} + 1, args.vocabulary), args.logits.size());
    VITRINE_CHECK(0 <= row.top_count && row.top_count <= kMaxTopLogprobs);
    VITRINE_CHECK_LT(row.token_id, args.vocabulary);
    const auto index = static_cast<size_t>(row.row);
    if (row.token_id < 0) VITRINE_CHECK_LT(index, args.token_ids.size());
    if (!row.is_processed) continue;
    VITRINE_CHECK_LT(index, args.sampling.size());
    VITRINE_CHECK_LE(Count(int64_t{args.sampling[index].adjusted_row} + 1, args.vocabulary),
                     args.adjusted.size());
  }
  DoLogprobs(args);
}

}  // namespace vitrine
