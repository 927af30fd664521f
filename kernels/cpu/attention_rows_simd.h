// Attention weights and scores of chosen rows, recomputed with the arithmetic of PagedAttention.
#pragma once

#include "kernels/cpu/paged_attention_simd.h"

namespace vitrine::cpu {

template <class S, class Kv>
class AttentionRowWriter {
 public:
  AttentionRowWriter(const WorkerContext& context, const AttentionRowsArgs& args)
      : args_(args), kv_(AsKv(args.kv)), scratch_(context.scratch.attention) {
    rule_.scale = args.scale;
    rule_.softcap = args.softcap;
    rule_.is_plain = false;
  }

  void Write(const AttentionItem& item, float* output) {
    const PagedBatch& batch = *args_.batch;
    const int sequence = SequenceOf(batch, item.row);
    const int position = PositionOf(batch, item.row);
    const int window = args_.windows.empty() ? 0 : args_.windows[static_cast<size_t>(item.layer)];
    const int first_key = window == 0 ? 0 : std::max(0, position - window + 1);
    const int64_t index =
        (int64_t{item.layer} * args_.row_capacity + item.row) * args_.num_heads + item.head;
    const int head_dim = kv_.spec().head_dim;
    Kv::PrepareQuery(args_.q.data() + index * head_dim, head_dim, scratch_.queries);

    const bool is_weights = args_.stage == AttentionStage::kWeights;
    std::fill_n(output, args_.key_columns,
                is_weights ? 0.0f : -std::numeric_limits<float>::infinity());
    const float log_sum_exp = is_weights ? args_.log_sum_exp.data()[index] : 0.0f;
    const int32_t* table = batch.block_table.data() + int64_t{sequence} * batch.max_blocks;
    for (int page = first_key / kKvBlockTokens; page <= position / kKvBlockTokens; ++page) {
      const int begin = std::max(first_key, page * kKvBlockTokens);
      const int end = std::min(position + 1, (page + 1) * kKvBlockTokens);
      ScorePage(item, table[page], page * kKvBlockTokens - position);
      if (is_weights) Exponentiate(log_sum_exp);
      std::copy(scratch_.scores[0] + begin % kKvBlockTokens,
                scratch_.scores[0] + begin % kKvBlockTokens + (end - begin), output + begin);
    }
  }

 private:
  // Scores of the 16 keys of a page; its first key is `distance` from the query.
  void ScorePage(const AttentionItem& item, int block, int distance) {
    const int kv_head = item.head / (args_.num_heads / kv_.spec().num_kv_heads);
    SegmentPages pages;
    pages.keys[0] = kv_.Keys(item.layer, kv_head, block);
    pages.values[0] = nullptr;
    pages.begin = 0;
    pages.end = 1;
    const float slope = args_.alibi_slopes.empty() ? 0.0f : args_.alibi_slopes.data()[item.head];
    const SegmentQuery query{scratch_.queries, 0, kKvBlockTokens, -distance, slope};
    ScorePages<S, Kv, 1, false>(&query, pages, 0, kv_.spec().head_dim, scratch_.scores);
    ApplyScoreRule<S>(rule_, query, 0, kKvBlockTokens, scratch_.scores[0]);
  }

  void Exponentiate(float log_sum_exp) {
    float* scores = scratch_.scores[0];
    const auto difference = S::Sub(S::Load(scores), S::Set(log_sum_exp));
    S::Store(scores, Exp2<S>(S::Mul(difference, S::Set(kLog2E))));
  }

  const AttentionRowsArgs& args_;
  const CpuKvStorage& kv_;
  AttentionScratch& scratch_;
  ScoreRule rule_;
};

template <class S, class Kv>
void WriteAttentionRows(const WorkerContext& context, const AttentionRowsArgs& args) {
  AttentionRowWriter<S, Kv> writer(context, args);
  context.pool.ForEach(context.worker, static_cast<int64_t>(args.items.size()), 1,
                       [&](int64_t item) {
                         writer.Write(args.items[static_cast<size_t>(item)],
                                      args.output.data() + item * args.key_columns);
                       });
}

template <class S>
void RunAttentionRows(const WorkerContext& context, const AttentionRowsPhase& phase) {
  switch (phase.args.kv->spec().dtype) {
    case DType::kF32:
      return WriteAttentionRows<S, F32Kv<S>>(context, phase.args);
    case DType::kQ8_0:
      return WriteAttentionRows<S, Int8KeyKv<S>>(context, phase.args);
    default:
      return WriteAttentionRows<S, Bf16Kv<S>>(context, phase.args);
  }
}

}  // namespace vitrine::cpu
