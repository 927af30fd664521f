#include "tests/kernels/paged.h"

#include <utility>

namespace vitrine::testing {

Step::Step(std::vector<int32_t> row_begin, std::vector<int32_t> first_position,
           std::vector<int32_t> block_table, int max_blocks)
    : row_begin_(std::move(row_begin)),
      first_position_(std::move(first_position)),
      block_table_(std::move(block_table)),
      batch_{.row_begin = row_begin_,
             .first_position = first_position_,
             .block_table = block_table_,
             .max_blocks = max_blocks} {}

PagedSequences::PagedSequences(int sequences, int max_tokens, Random& random)
    : blocks_per_sequence_((max_tokens + kKvBlockTokens - 1) / kKvBlockTokens),
      blocks_(random.Permutation(sequences * blocks_per_sequence_)) {}

Step PagedSequences::MakeStep(const std::vector<StepPart>& parts) const {
  std::vector<int32_t> row_begin = {0};
  std::vector<int32_t> first_position;
  std::vector<int32_t> block_table;
  for (const StepPart& part : parts) {
    row_begin.push_back(row_begin.back() + part.rows);
    first_position.push_back(part.first_position);
    const auto begin = blocks_.begin() + part.sequence * blocks_per_sequence_;
    block_table.insert(block_table.end(), begin, begin + blocks_per_sequence_);
  }
  return Step(std::move(row_begin), std::move(first_position), std::move(block_table),
              blocks_per_sequence_);
}

KvStorageSpec HeadShape::KvSpec(DType dtype, int num_blocks, int num_layers) const {
  return {.num_layers = num_layers,
          .num_kv_heads = num_kv_heads,
          .head_dim = head_dim,
          .num_blocks = num_blocks,
          .dtype = dtype};
}

std::vector<DType> CacheTypes(const BackendCase& backend_case) {
  if (backend_case.backend == "cpu") return {DType::kF32, DType::kBF16, DType::kQ8_0};
  return {DType::kF32, DType::kBF16};
}

DeviceSpan<float> WriteUnrotated(Harness& harness, KvStorage* kv, int layer, const Step& step,
                                 const HeadShape& shape, std::span<const float> qkv) {
  const DeviceSpan<float> q = harness.Zeros(step.rows() * shape.q_columns());
  harness->RopeWriteKv({.qkv = harness.Upload(qkv),
                        .target = {.cosines = {},
                                   .sines = {},
                                   .batch = &step.batch(),
                                   .num_heads = shape.num_heads,
                                   .kv = kv,
                                   .layer = layer,
                                   .q = q}});
  harness->Synchronize();
  return q;
}

CachedRows ReadCache(Harness& harness, const KvStorage* kv, int layer, const Step& step) {
  const int heads = kv->spec().num_kv_heads;
  const int head_dim = kv->spec().head_dim;
  const int64_t columns = int64_t{heads} * head_dim;
  RowBuffer* output = harness.NewRows(step.rows(), {harness.Identity(columns)});
  CachedRows cached;
  cached.keys.resize(static_cast<size_t>(step.rows() * columns));
  for (int d = 0; d < head_dim; ++d) {
    std::vector<float> q(cached.keys.size());
    for (size_t i = static_cast<size_t>(d); i < q.size(); i += static_cast<size_t>(head_dim)) {
      q[i] = 1.0f;
    }
    const DeviceSpan<float> log_sum_exp = harness.Zeros(int64_t{step.rows()} * heads);
    harness->PagedAttention({.q = harness.Upload(q),
                             .batch = &step.batch(),
                             .kv = kv,
                             .layer = layer,
                             .num_heads = heads,
                             .window = 1,
                             .output = output,
                             .log_sum_exp = log_sum_exp});
    const std::vector<float> elements = harness.Download(log_sum_exp);
    for (size_t i = 0; i < elements.size(); ++i) {
      cached.keys[i * static_cast<size_t>(head_dim) + static_cast<size_t>(d)] = elements[i];
    }
  }
  cached.values = harness.Read(output, step.rows());
  return cached;
}

}  // namespace vitrine::testing
