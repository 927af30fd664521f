// Attention over the paged cache for the query heads that share one key/value head.
//
// Decode is bound by memory: the values of a segment are fetched line by line while its scores are
// computed, and the keys of the next segment while values are weighed (36 GB/s against 23 without,
// on two Zen 4 cores). Prompts are bound by the dot products: 6 query rows x 4 vectors fill the
// registers (78 % of the bf16 rate of the same cores).
#pragma once

#include <cmath>
#include <limits>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/key_scores_simd.h"
#include "kernels/cpu/row_output_simd.h"
#include "kernels/cpu/vector_math_simd.h"

namespace vitrine::cpu {

// What all rows of an op share.
struct ScoreRule {
  float scale;
  float softcap;
  bool is_plain;  // Positive scale, no soft cap, no ALiBi: the scale is folded into the exponent.
};

// Scores that are not plain, in natural units.
template <class S>
void ApplyScoreRule(const ScoreRule& rule, const SegmentQuery& row, int begin, int end,
                    float* scores) {
  alignas(64) static constexpr float kSteps[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                   8, 9, 10, 11, 12, 13, 14, 15};
  for (int key = begin; key < end; key += 16) {
    auto score = S::Mul(S::Load(scores + key), S::Set(rule.scale));
    if (rule.softcap != 0.0f) {
      score = S::Mul(S::Set(rule.softcap), Tanh<S>(S::Div(score, S::Set(rule.softcap))));
    }
    if (row.alibi_slope != 0.0f) {
      const auto distance = S::Add(S::Load(kSteps), S::Set(static_cast<float>(key - row.position)));
      score = S::Add(score, S::Mul(S::Set(row.alibi_slope), distance));
    }
    S::Store(scores + key, score);
  }
}

// Scores outside [first, last) become -inf, so that the passes after it need no mask.
template <class S>
VITRINE_INLINE void MaskScores(int first, int last, int begin, int end, float* scores) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  for (int key = begin; key < first; ++key) scores[key] = kLowest;
  int key = last;
  for (; key % 16 != 0 && key < end; ++key) scores[key] = kLowest;
  for (; key < end; key += 16) S::Store(scores + key, S::Set(kLowest));
}

// Keys [begin, end) that the passes over the scores of a segment take: whole steps of 32 keys at
// absolute positions, since which lane of the sum a key belongs to must not depend on the pages
// that are read.
struct ScoredKeys {
  int begin;
  int end;
};

VITRINE_INLINE ScoredKeys ScoredKeysOf(const SegmentPages& pages) {
  return {pages.begin * kKvBlockTokens / 32 * 32, (pages.end * kKvBlockTokens + 31) / 32 * 32};
}

// The factor that makes scores exponents of 2.
VITRINE_INLINE float Log2Scale(const ScoreRule& rule) {
  return rule.is_plain ? rule.scale * kLog2E : kLog2E;
}

// Finishes the scores of a row; the largest, as an exponent of 2.
template <class S>
VITRINE_INLINE float FinishScores(const ScoreRule& rule, const SegmentQuery& row, ScoredKeys keys,
                                  float* scores) {
  if (!rule.is_plain) ApplyScoreRule<S>(rule, row, row.begin / 16 * 16, row.end, scores);
  MaskScores<S>(row.begin, row.end, keys.begin, keys.end, scores);
  auto maximum = S::Load(scores + keys.begin);
  for (int key = keys.begin + 16; key < keys.end; key += 16) {
    maximum = S::Max(maximum, S::Load(scores + key));
  }
  return S::ReduceMax(maximum) * Log2Scale(rule);
}

// Turns the scores of a row into weights; their sum. Weights of invisible keys are exactly 0:
// adding them changes nothing, however many pages the caller goes on to read.
template <class S, class Kv>
VITRINE_INLINE float WeighScores(const ScoreRule& rule, float largest, ScoredKeys keys,
                                 const float* scores, float* weights) {
  const auto to_log2 = S::Set(Log2Scale(rule));
  const auto shift = S::Set(-largest);
  auto sum = S::Zero();
  for (int key = keys.begin; key < keys.end; key += 32) {
    const auto low = S::Fma(S::Load(scores + key), to_log2, shift);
    const auto high = S::Fma(S::Load(scores + key + 16), to_log2, shift);
    Kv::Weigh(low, high, weights, key, sum);
  }
  return S::ReduceAdd(sum);
}

// Weighted sums of dimensions [16 first, 16 (first + kVectors)) of the values. With kFetch the keys
// of the next segment are fetched on the way.
template <class S, class Kv, int kRows, int kVectors, bool kFetch>
VITRINE_INLINE void WeighVectors(const float (*weights)[kAttentionSegmentKeys],
                                 const SegmentPages& pages, const SegmentPages* next, int first,
                                 int padded_dim, float* results) {
  constexpr int kSteps = kKvBlockTokens / Kv::kElementsPerStep;
  typename S::F sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (auto& sum : sums[r]) sum = S::Zero();
  }
  const auto weigh = [&](const uint8_t* values, const uint8_t* fetch, int key,
                         bool lone) VITRINE_LAMBDA_INLINE {
    typename Kv::Vector value[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      value[v] = Kv::Load(values + 64 * v);
      // The other token of the pair was never written: 0 times what lies there may be NaN.
      if (lone) value[v] = Kv::FirstOnly(value[v]);
      if constexpr (kFetch) S::FetchToL2(fetch + 64 * v);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto weight = Kv::Broadcast(weights[r] + key / Kv::kElementsPerStep * Kv::kStepFloats);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] = Kv::Dot(sums[r][v], value[v], weight);
    }
  };
#pragma GCC unroll 1
  for (int p = pages.begin; p < pages.end; ++p) {
    const uint8_t* values = pages.values[p] + 64 * first;
    const uint8_t* fetch = nullptr;
    if constexpr (kFetch) fetch = next->keys[p < next->end ? p : next->end - 1] + 64 * first;
    const int keys = pages.last_key - p * kKvBlockTokens;
    const int whole_steps = keys < kKvBlockTokens ? keys / Kv::kElementsPerStep : kSteps;
#pragma GCC unroll 1
    for (int step = 0; step < whole_steps; ++step) {
      const int64_t offset = int64_t{4} * padded_dim * step;
      weigh(values + offset, fetch + (kFetch ? offset : 0),
            p * kKvBlockTokens + step * Kv::kElementsPerStep, false);
    }
    if (whole_steps < kSteps && whole_steps * Kv::kElementsPerStep < keys) {
      const int64_t offset = int64_t{4} * padded_dim * whole_steps;
      weigh(values + offset, fetch + (kFetch ? offset : 0),
            p * kKvBlockTokens + whole_steps * Kv::kElementsPerStep, true);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    float* out = results + SegmentResult::Floats(padded_dim) * r + 16 * first;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) S::Store(out + 16 * v, sums[r][v]);
  }
}

// Reduces one segment for kRows rows.
template <class S, class Kv, int kRows, bool kFetch>
void AttendRows(const ScoreRule& rule, const SegmentQuery* rows, const SegmentPages& pages,
                const SegmentPages* next, int head_dim, AttentionScratch& scratch, float* results) {
  const int padded_dim = (head_dim + 15) / 16 * 16;
  for (int p = pages.begin; p < pages.end; p += S::kAttentionVectors) {
    ScorePages<S, Kv, kRows, kFetch>(rows, pages, p, head_dim, scratch.scores);
  }
  // Row after row, each pass would wait for the end of the one before.
  const ScoredKeys keys = ScoredKeysOf(pages);
  float largest[kRows];
  for (int r = 0; r < kRows; ++r) {
    largest[r] = FinishScores<S>(rule, rows[r], keys, scratch.scores[r]);
  }
  for (int r = 0; r < kRows; ++r) {
    const SegmentResult result{results + SegmentResult::Floats(padded_dim) * r, padded_dim};
    result.maximum() = largest[r];
    result.weight_sum() =
        WeighScores<S, Kv>(rule, largest[r], keys, scratch.scores[r], scratch.weights[r]);
  }
  const int vectors = padded_dim / 16;
  int v = 0;
  for (; v + S::kAttentionVectors <= vectors; v += S::kAttentionVectors) {
    WeighVectors<S, Kv, kRows, S::kAttentionVectors, kFetch>(scratch.weights, pages, next, v,
                                                             padded_dim, results);
  }
  for (; v < vectors; ++v) {
    WeighVectors<S, Kv, kRows, 1, kFetch>(scratch.weights, pages, next, v, padded_dim, results);
  }
}

// With `next` (decode, where every key comes from memory once) data is fetched ahead of use.
template <class S, class Kv>
void AttendSegment(const ScoreRule& rule, const SegmentQuery* rows, int count,
                   const SegmentPages& pages, const SegmentPages* next, int head_dim,
                   AttentionScratch& scratch, float* results) {
  using Attend = void (*)(const ScoreRule&, const SegmentQuery*, const SegmentPages&,
                          const SegmentPages*, int, AttentionScratch&, float*);
  static constexpr auto kAttend = []<int... kRow>(std::integer_sequence<int, kRow...>) {
    return std::array<std::array<Attend, 2>, sizeof...(kRow)>{
        {{AttendRows<S, Kv, kRow + 1, false>, AttendRows<S, Kv, kRow + 1, true>}...}};
  }(std::make_integer_sequence<int, S::kAttentionRows>());
  kAttend[static_cast<size_t>(count - 1)][next != nullptr](rule, rows, pages, next, head_dim,
                                                           scratch, results);
}

// Folds `next` into `total`; calls come in ascending segment order.
template <class S>
void MergeSegment(const SegmentResult& next, const SegmentResult& total) {
  const float maximum = total.maximum() > next.maximum() ? total.maximum() : next.maximum();
  const auto old_factor = Exp2<S>(S::Set(total.maximum() - maximum));
  const auto new_factor = Exp2<S>(S::Set(next.maximum() - maximum));
  for (int i = 0; i < total.padded_dim; i += 16) {
    const auto old_part = S::Mul(S::Load(total.data + i), old_factor);
    S::Store(total.data + i, S::Fma(S::Load(next.data + i), new_factor, old_part));
  }
  total.weight_sum() =
      total.weight_sum() * S::First(old_factor) + next.weight_sum() * S::First(new_factor);
  total.maximum() = maximum;
}

// One PagedAttention on one worker.
template <class S, class Kv>
class AttentionRunner {
 public:
  AttentionRunner(const WorkerContext& context, const PagedAttentionPhase& phase)
      : args_(phase.args),
        plan_(*phase.plan),
        kv_(AsKv(phase.args.kv)),
        head_dim_(kv_.spec().head_dim),
        stride_(SegmentResult::Floats(kv_.padded_dim())),
        output_(AsRows(phase.args.output).shared(), context.scratch.pending),
        quantizes_later_(phase.quantizes_later),
        scratch_(context.scratch.attention) {
    rule_.scale = args_.scale;
    rule_.softcap = args_.softcap;
    rule_.is_plain = args_.scale > 0 && args_.softcap == 0 && args_.alibi_slopes.empty();
  }

  void Run(int index) {
    const AttentionUnit& unit = plan_.units()[static_cast<size_t>(index)];
    PrepareQueries(unit);
    if (unit.first_result < 0) {
      RunAllSegments(unit, index);
    } else {
      RunOneSegment(unit, index);
    }
  }

  // Behind the last unit.
  void Finish() { output_.Finish(); }

 private:
  SegmentResult Result(float* results, int row) const {
    return {results + stride_ * row, kv_.padded_dim()};
  }

  // [token][head of the unit]
  void PrepareQueries(const AttentionUnit& unit) {
    for (int i = 0; i < unit.rows(); ++i) {
      const int64_t row = unit.first_row + i / unit.heads;
      const int64_t head = unit.first_head + i % unit.heads;
      Kv::PrepareQuery(args_.q.data() + (row * args_.num_heads + head) * head_dim_, head_dim_,
                       scratch_.queries + i * kv_.padded_dim());
    }
  }

  // Where the pages of a segment lie that rows of the unit see.
  SegmentPages Gather(const AttentionUnit& unit, int segment) const {
    const PagedBatch& batch = *args_.batch;
    const int32_t* table = batch.block_table.data() + int64_t{unit.sequence} * batch.max_blocks;
    const int first = segment * kSegmentPages;
    const int first_key =
        args_.window == 0 ? 0 : std::max(0, unit.first_position - args_.window + 1);
    const int end_key = unit.first_position + unit.tokens;
    SegmentPages pages;
    pages.begin = std::max(0, first_key / kKvBlockTokens - first);
    pages.end = std::min(kSegmentPages, (end_key - 1) / kKvBlockTokens + 1 - first);
    pages.last_key = end_key - segment * kAttentionSegmentKeys;
    for (int i = pages.begin; i < pages.end; ++i) {
      const int block = table[first + i];
      pages.keys[i] = kv_.Keys(args_.layer, unit.kv_head, block);
      pages.values[i] = kv_.Values(args_.layer, unit.kv_head, block);
    }
    return pages;
  }

  // False for a row that sees no key of the segment.
  bool MakeQuery(const AttentionUnit& unit, int row, int segment, SegmentQuery& query) const {
    const int first_key = segment * kAttentionSegmentKeys;
    const int position = unit.first_position + row / unit.heads - first_key;
    const int head = unit.first_head + row % unit.heads;
    query.query = scratch_.queries + row * kv_.padded_dim();
    query.begin = args_.window == 0 ? 0 : std::max(0, position - args_.window + 1);
    query.end = std::min(kAttentionSegmentKeys, position + 1);
    query.position = position;
    query.alibi_slope = args_.alibi_slopes.empty() ? 0.0f : args_.alibi_slopes.data()[head];
    return query.begin < query.end;
  }

  // Reduces a segment for all rows of the unit. visit(row, result) in ascending rows.
  template <class Visit>
  void ReduceSegment(const AttentionUnit& unit, int segment, const SegmentPages* next,
                     Visit&& visit) {
    const SegmentPages all = Gather(unit, segment);
    SegmentQuery queries[S::kAttentionRows];
    int rows[S::kAttentionRows];
    int count = 0;
    for (int row = 0; row < unit.rows(); ++row) {
      if (MakeQuery(unit, row, segment, queries[count])) rows[count++] = row;
      if (count == 0 || (count < S::kAttentionRows && row + 1 < unit.rows())) continue;
      SegmentPages pages = all;
      // The last token sees most, the first token furthest back.
      pages.begin = queries[0].begin / kKvBlockTokens;
      pages.end = (queries[count - 1].end - 1) / kKvBlockTokens + 1;
      AttendSegment<S, Kv>(rule_, queries, count, pages, next, head_dim_, scratch_,
                           scratch_.segment);
      for (int i = 0; i < count; ++i) visit(rows[i], Result(scratch_.segment, i));
      count = 0;
    }
  }

  void RunAllSegments(const AttentionUnit& unit, int index) {
    const bool fetches = unit.tokens == 1;
    bool started[kUnitRows] = {};
    for (int segment = unit.first_segment; segment < unit.end_segment; ++segment) {
      SegmentPages next;
      if (fetches) next = PagesAfter(index);
      ReduceSegment(unit, segment, fetches ? &next : nullptr,
                    [&](int row, const SegmentResult& result) {
                      const SegmentResult total = Result(scratch_.totals, row);
                      if (started[row]) {
                        MergeSegment<S>(result, total);
                      } else {
                        std::copy(result.data, result.data + stride_, total.data);
                        started[row] = true;
                      }
                    });
    }
    for (int row = 0; row < unit.rows(); ++row) Finish(unit, row, Result(scratch_.totals, row));
  }

  // A row that sees nothing of the segment leaves a weight sum of 0.
  void RunOneSegment(const AttentionUnit& unit, int index) {
    float* results = plan_.partial(unit.first_result);
    for (int row = 0; row < unit.rows(); ++row) Result(results, row).weight_sum() = 0.0f;
    const SegmentPages next = PagesAfter(index);
    ReduceSegment(unit, unit.first_segment, unit.tokens == 1 ? &next : nullptr,
                  [&](int row, const SegmentResult& result) {
                    std::copy(result.data, result.data + stride_, Result(results, row).data);
                  });
    if (!plan_.FinishPart(unit)) return;
    const int first_segment =
        args_.window == 0
            ? 0
            : std::max(0, unit.first_position - args_.window + 1) / kAttentionSegmentKeys;
    float* first =
        plan_.partial(unit.first_result - (unit.first_segment - first_segment) * unit.rows());
    for (int row = 0; row < unit.rows(); ++row) {
      const SegmentResult total = Result(scratch_.totals, row);
      bool started = false;
      for (int part = 0; part < unit.parts; ++part) {
        const SegmentResult result = Result(first, part * unit.rows() + row);
        if (result.weight_sum() == 0.0f) continue;
        if (started) {
          MergeSegment<S>(result, total);
        } else {
          std::copy(result.data, result.data + stride_, total.data);
          started = true;
        }
      }
      Finish(unit, row, total);
    }
  }

  // Units are handed out in ascending order, so the next one is most likely ours as well.
  SegmentPages PagesAfter(int index) const {
    const auto last = static_cast<int>(plan_.units().size()) - 1;
    const AttentionUnit& unit = plan_.units()[static_cast<size_t>(std::min(index + 1, last))];
    SegmentPages pages = Gather(unit, unit.first_segment);
    // Pages below the first one repeat it: they may be asked for, never read.
    for (int i = 0; i < pages.begin; ++i) pages.keys[i] = pages.keys[pages.begin];
    return pages;
  }

  // Divides by the weight sum, sink included, and writes the head's outputs.
  void Finish(const AttentionUnit& unit, int index, const SegmentResult& total) {
    const int row = unit.first_row + index / unit.heads;
    const int head = unit.first_head + index % unit.heads;
    float maximum = total.maximum();
    float sum = total.weight_sum();
    float factor = 1.0f;
    if (!args_.sinks.empty()) {
      const float sink = args_.sinks.data()[head] * kLog2E;
      maximum = sink > maximum ? sink : maximum;
      factor = S::First(Exp2<S>(S::Set(total.maximum() - maximum)));
      sum = sum * factor + S::First(Exp2<S>(S::Set(sink - maximum)));
    }
    if (!args_.log_sum_exp.empty()) {
      const double log_sum = std::log(static_cast<double>(sum));
      args_.log_sum_exp.data()[int64_t{row} * args_.num_heads + head] =
          static_cast<float>(static_cast<double>(maximum) * 0.69314718055994531 + log_sum);
    }
    WriteHead(row, head, S::Set(factor / sum), total.data);
  }

  void WriteHead(int row, int head, typename S::F factor, const float* values) {
    if (!quantizes_later_ && output_.rows().wants_int8) {
      for (int d = 0; d < head_dim_; d += kBlockColumns) {
        output_.Write(row, (head * head_dim_ + d) / kBlockColumns,
                      S::Mul(S::Load(values + d), factor),
                      S::Mul(S::Load(values + d + 16), factor));
      }
      return;
    }
    float* out = output_.rows().Row(row) + head * head_dim_;
    int d = 0;
    for (; d + 16 <= head_dim_; d += 16) S::Store(out + d, S::Mul(S::Load(values + d), factor));
    if (d < head_dim_) {
      S::StorePartial(out + d, S::Mul(S::Load(values + d), factor), head_dim_ - d);
    }
  }

  const PagedAttentionArgs& args_;
  AttentionPlan& plan_;
  const CpuKvStorage& kv_;
  const int head_dim_;
  const int stride_;
  BlockWriter<S> output_;
  const bool quantizes_later_;
  AttentionScratch& scratch_;
  ScoreRule rule_;
};

template <class S, class Kv>
void RunAttentionUnits(const WorkerContext& context, const PagedAttentionPhase& phase) {
  AttentionRunner<S, Kv> runner(context, phase);
  context.pool.ForEach(context.worker, static_cast<int64_t>(phase.plan->units().size()), 1,
                       [&](int64_t unit) { runner.Run(static_cast<int>(unit)); });
  runner.Finish();
}

template <class S>
void RunPagedAttention(const WorkerContext& context, const PagedAttentionPhase& phase) {
  switch (phase.args.kv->spec().dtype) {
    case DType::kF32:
      return RunAttentionUnits<S, F32Kv<S>>(context, phase);
    case DType::kQ8_0:
      return RunAttentionUnits<S, Int8KeyKv<S>>(context, phase);
    default:
      return RunAttentionUnits<S, Bf16Kv<S>>(context, phase);
  }
}

}  // namespace vitrine::cpu
