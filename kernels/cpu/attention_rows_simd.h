// Attention weights and scores of chosen rows, recomputed with the arithmetic of PagedAttention.
//
// Neighbours among the items that read the same keys are scored together, several pages at a time:
// a single chain of dot products would wait for itself four fifths of the time. What a row gives
// does not depend on its company.
#pragma once

#include <array>
#include <utility>

#include "kernels/cpu/attention_reduce.h"
#include "kernels/cpu/paged_attention_simd.h"

namespace vitrine::cpu {

template <class S, class Kv>
class AttentionRowWriter {
 public:
  static constexpr int kMostItems = S::kAttentionRows;          // Of one call of Write.
  static constexpr int kFetchAhead = 3 * S::kAttentionVectors;  // Pages; memory is slow.

  AttentionRowWriter(const WorkerContext& context, const AttentionRowsArgs& args)
      : args_(args), kv_(AsKv(args.kv)), scratch_(context.scratch.attention) {
    rule_.scale = args.scale;
    rule_.softcap = args.softcap;
    rule_.is_plain = false;
  }

  // Items [begin, end), at most kMostItems.
  void Write(size_t begin, size_t end) {
    while (begin < end) {
      size_t stop = begin + 1;
      while (stop < end && ReadsTheSame(args_.items[begin], args_.items[stop])) ++stop;
      WriteTogether(begin, static_cast<int>(stop - begin));
      begin = stop;
    }
  }

 private:
  // One item under way.
  struct Row {
    float* output;
    float log_sum_exp;
    float alibi_slope;
    int first_key;
    int position;
  };

  int KvHead(const AttentionItem& item) const {
    return item.head / (args_.num_heads / kv_.spec().num_kv_heads);
  }
  bool ReadsTheSame(const AttentionItem& a, const AttentionItem& b) const {
    return a.layer == b.layer && KvHead(a) == KvHead(b) &&
           (a.row == b.row || SequenceOf(*args_.batch, a.row) == SequenceOf(*args_.batch, b.row));
  }

  void WriteTogether(size_t begin, int count) {
    const AttentionItem& first = args_.items[begin];
    std::array<Row, kMostItems> rows;
    int first_key = args_.key_columns;
    int last_key = 0;
    for (int i = 0; i < count; ++i) {
      rows[i] = Prepare(begin + static_cast<size_t>(i), i);
      first_key = std::min(first_key, rows[i].first_key);
      last_key = std::max(last_key, rows[i].position);
    }
    const size_t after = begin + static_cast<size_t>(count);
    const AttentionItem* const next = after < args_.items.size() ? &args_.items[after] : nullptr;
    for (int segment = first_key / kAttentionSegmentKeys;
         segment <= last_key / kAttentionSegmentKeys; ++segment) {
      const int first_page = segment * kSegmentPages;
      SegmentPages pages;
      pages.begin = std::max(0, first_key / kKvBlockTokens - first_page);
      pages.end = std::min(kSegmentPages, last_key / kKvBlockTokens + 1 - first_page);
      for (int i = pages.begin; i < pages.end; ++i) {
        const int page = first_page + i;
        pages.keys[i] = Keys(first, page);
        pages.values[i] = KeysToFetch(first, page, last_key / kKvBlockTokens, next);
      }
      Score(pages, count);
      for (int i = 0; i < count; ++i) Finish(rows[i], segment, scratch_.scores[i]);
    }
  }

  const uint8_t* Keys(const AttentionItem& item, int page) const {
    const PagedBatch& batch = *args_.batch;
    const int64_t sequence = SequenceOf(batch, item.row);
    return kv_.Keys(item.layer, KvHead(item),
                    batch.block_table[static_cast<size_t>(sequence * batch.max_blocks + page)]);
  }

  // What comes next while `page` is read: further pages up to `last`, then those of item `next`.
  const uint8_t* KeysToFetch(const AttentionItem& item, int page, int last,
                             const AttentionItem* next) const {
    const int ahead = page + kFetchAhead;
    if (ahead <= last || next == nullptr) return Keys(item, std::min(ahead, last));
    const int last_of_next = PositionOf(*args_.batch, next->row) / kKvBlockTokens;
    return Keys(*next, std::min(ahead - last - 1, last_of_next));
  }

  // Leaves the query in place `index` of the scratch, and what the row does not see in its output.
  Row Prepare(size_t item_index, int index) {
    const AttentionItem& item = args_.items[item_index];
    const int position = PositionOf(*args_.batch, item.row);
    const int window = args_.windows.empty() ? 0 : args_.windows[static_cast<size_t>(item.layer)];
    const int64_t at = args_.IndexOf(item);
    const int head_dim = kv_.spec().head_dim;
    Kv::PrepareQuery(args_.q.data() + at * head_dim, head_dim,
                     scratch_.queries + index * kv_.padded_dim());
    Row row;
    row.output = args_.output.data() + static_cast<int64_t>(item_index) * args_.key_columns;
    row.log_sum_exp = is_weights_ ? args_.log_sum_exp.data()[at] : 0.0f;
    row.alibi_slope = args_.alibi_slopes.empty() ? 0.0f : args_.alibi_slopes.data()[item.head];
    row.first_key = window == 0 ? 0 : std::max(0, position - window + 1);
    row.position = position;
    const float unseen = is_weights_ ? 0.0f : -std::numeric_limits<float>::infinity();
    std::fill_n(row.output, row.first_key, unseen);
    std::fill(row.output + position + 1, row.output + args_.key_columns, unseen);
    return row;
  }

  // Raw scores of the queries in the scratch.
  void Score(const SegmentPages& pages, int count) {
    using ScoreAll = void (*)(const SegmentQuery*, const SegmentPages&, int, AttentionScratch&);
    static constexpr auto kScore = []<int... kRow>(std::integer_sequence<int, kRow...>) {
      return std::array<ScoreAll, sizeof...(kRow)>{ScoreRows<kRow + 1>...};
    }(std::make_integer_sequence<int, kMostItems>());
    SegmentQuery queries[kMostItems];
    for (int i = 0; i < count; ++i) queries[i].query = scratch_.queries + i * kv_.padded_dim();
    kScore[static_cast<size_t>(count - 1)](queries, pages, kv_.spec().head_dim, scratch_);
  }

  template <int kRows>
  static void ScoreRows(const SegmentQuery* queries, const SegmentPages& pages, int head_dim,
                        AttentionScratch& scratch) {
    for (int page = pages.begin; page < pages.end; page += S::kAttentionVectors) {
      ScorePages<S, Kv, kRows, true>(queries, pages, page, head_dim, scratch.scores);
    }
  }

  // From raw scores of a segment to the row's output.
  void Finish(const Row& row, int segment, float* scores) const {
    const int origin = segment * kAttentionSegmentKeys;
    const int begin = std::max(0, row.first_key - origin);
    const int end = std::min(kAttentionSegmentKeys, row.position + 1 - origin);
    if (begin >= end) return;
    const int first = begin / 16 * 16;
    const SegmentQuery query{nullptr, begin, end, row.position - origin, row.alibi_slope};
    ApplyScoreRule<S>(rule_, query, first, end, scores);
    const auto log_sum_exp = S::Set(row.log_sum_exp);
    for (int key = first; key < end; key += 16) {
      auto value = S::Load(scores + key);
      if (is_weights_) value = Exp2<S>(S::Mul(S::Sub(value, log_sum_exp), S::Set(kLog2E)));
      if (key >= begin) {
        S::StorePartial(row.output + origin + key, value, std::min(16, end - key));
      } else {
        S::Store(scores + key, value);
        std::copy(scores + begin, scores + std::min(key + 16, end), row.output + origin + begin);
      }
    }
  }

  const AttentionRowsArgs& args_;
  const bool is_weights_ = args_.stage == AttentionStage::kWeights;
  const CpuKvStorage& kv_;
  AttentionScratch& scratch_;
  ScoreRule rule_;
};

template <class S, class Kv>
void WriteAttentionRows(const WorkerContext& context, const AttentionRowsPhase& phase) {
  const AttentionRowsArgs& args = phase.args;
  using Writer = AttentionRowWriter<S, Kv>;
  Writer writer(context, args);
  const auto items = static_cast<int64_t>(args.items.size());
  // Where there are few, every worker gets some.
  const int64_t workers = context.pool.workers();
  const int64_t size = std::min<int64_t>(Writer::kMostItems, (items + workers - 1) / workers);
  context.pool.ForEach(context.worker, (items + size - 1) / size, 1, [&](int64_t group) {
    const auto begin = static_cast<size_t>(group * size);
    const auto end = static_cast<size_t>(std::min(items, (group + 1) * size));
    writer.Write(begin, end);
    if (!phase.reduction.has_value()) return;
    for (size_t i = begin; i < end; ++i) ReduceAttentionRow(context.kernels, *phase.reduction, i);
  });
}

template <class S>
void RunAttentionRows(const WorkerContext& context, const AttentionRowsPhase& phase) {
  switch (phase.args.kv->spec().dtype) {
    case DType::kF32:
      return WriteAttentionRows<S, F32Kv<S>>(context, phase);
    case DType::kQ8_0:
      return WriteAttentionRows<S, Int8KeyKv<S>>(context, phase);
    default:
      return WriteAttentionRows<S, Bf16Kv<S>>(context, phase);
  }
}

}  // namespace vitrine::cpu
