#include "kernels/reference/attention_rows.h"

#include <cmath>
#include <limits>

#include "kernels/reference/attention_score.h"

namespace vitrine::reference {
namespace {

int SequenceOf(const PagedBatch& batch, int row) {
  int sequence = 0;
  while (row >= batch.row_begin[static_cast<size_t>(sequence) + 1]) ++sequence;
  return sequence;
}

Query QueryOf(const AttentionRowsArgs& args, const AttentionItem& item) {
  const KvCache& kv = AsKvCache(args.kv);
  const int sequence = SequenceOf(*args.batch, item.row);
  const auto s = static_cast<size_t>(sequence);
  const auto layer = static_cast<size_t>(item.layer);
  return {.batch = *args.batch,
          .kv = kv,
          .q = args.q.data() + args.IndexOf(item) * kv.spec().head_dim,
          .sequence = sequence,
          .position = args.batch->first_position[s] + item.row - args.batch->row_begin[s],
          .layer = item.layer,
          .kv_head = item.head / (args.num_heads / kv.spec().num_kv_heads),
          .scale = args.scale,
          .softcap = args.softcap,
          .window = args.windows.empty() ? 0 : args.windows[layer],
          .alibi_slope = args.alibi_slopes.empty() ? 0.0f : args.alibi_slopes.data()[item.head]};
}

}  // namespace

void AttentionRows(const AttentionRowsArgs& args) {
  const bool is_weights = args.stage == AttentionStage::kWeights;
  float* output = args.output.data();
  for (const AttentionItem& item : args.items) {
    const Query query = QueryOf(args, item);
    const int64_t index = args.IndexOf(item);
    for (int key = 0; key < args.key_columns; ++key) {
      double score = -std::numeric_limits<double>::infinity();
      if (key >= query.first_key() && key <= query.position) score = Score(query, key);
      const double weight = std::exp(score - args.log_sum_exp.data()[index]);
      *output++ = static_cast<float>(is_weights ? weight : score);
    }
  }
}

}  // namespace vitrine::reference
