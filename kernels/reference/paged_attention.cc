#include "kernels/reference/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/attention_score.h"

namespace vitrine::reference {
namespace {

// Turns scratch.scores into exp(score - log_sum_exp) and returns log_sum_exp.
double Softmax(const Query& query, double sink, Scratch& scratch) {
  const auto begin = scratch.scores.begin() + query.first_key();
  const auto end = scratch.scores.begin() + query.position + 1;
  const double largest = std::max(*std::max_element(begin, end), sink);
  double sum = std::exp(sink - largest);
  for (auto score = begin; score != end; ++score) sum += std::exp(*score - largest);
  const double log_sum_exp = largest + std::log(sum);
  for (auto score = begin; score != end; ++score) *score = std::exp(*score - log_sum_exp);
  return log_sum_exp;
}

// Writes one head's output and returns its log-sum-exp.
double Attend(const Query& query, double sink, Scratch& scratch, float* output) {
  for (int key = query.first_key(); key <= query.position; ++key) {
    scratch.scores[static_cast<size_t>(key)] = Score(query, key);
  }
  const double log_sum_exp = Softmax(query, sink, scratch);
  for (int d = 0; d < query.kv.spec().head_dim; ++d) {
    double sum = 0;
    for (int key = query.first_key(); key <= query.position; ++key) {
      sum += scratch.scores[static_cast<size_t>(key)] * query.Cached(KvPart::kValue, key)[d];
    }
    output[d] = static_cast<float>(sum);
  }
  return log_sum_exp;
}

}  // namespace

void PagedAttention(const PagedAttentionArgs& args, Scratch& scratch) {
  const KvCache& kv = AsKvCache(args.kv);
  const int head_dim = kv.spec().head_dim;
  const int group = args.num_heads / kv.spec().num_kv_heads;
  ForEachRow(*args.batch, [&](int sequence, int row, int position) {
    VITRINE_CHECK_LT(static_cast<size_t>(position), scratch.scores.size());
    for (int head = 0; head < args.num_heads; ++head) {
      const int64_t index = int64_t{row} * args.num_heads + head;
      const Query query = {
          .batch = *args.batch,
          .kv = kv,
          .q = args.q.data() + index * head_dim,
          .sequence = sequence,
          .position = position,
          .layer = args.layer,
          .kv_head = head / group,
          .scale = args.scale,
          .softcap = args.softcap,
          .window = args.window,
          .alibi_slope = args.alibi_slopes.empty() ? 0.0f : args.alibi_slopes.data()[head]};
      const double sink = args.sinks.empty() ? -std::numeric_limits<double>::infinity()
                                             : double{args.sinks.data()[head]};
      float* output = AsRows(args.output).Row(row) + head * head_dim;
      const double log_sum_exp = Attend(query, sink, scratch, output);
      if (args.log_sum_exp.empty()) continue;
      args.log_sum_exp.data()[index] = static_cast<float>(log_sum_exp);
    }
  });
}

}  // namespace vitrine::reference
