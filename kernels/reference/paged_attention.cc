#include "kernels/reference/paged_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/dot.h"

namespace vitrine::reference {
namespace {

// One query head of one row.
struct Query {
  const PagedAttentionArgs& args;
  int sequence;
  int row;
  int position;
  int head;

  int first_key() const { return args.window == 0 ? 0 : std::max(0, position - args.window + 1); }
  const float* Cached(KvPart part, int key) const {
    const KvCache& kv = AsKvCache(args.kv);
    const int kv_head = head / (args.num_heads / kv.spec().num_kv_heads);
    const KvPlace place = PlaceOf(*args.batch, sequence, key);
    return kv.At(args.layer, part, kv_head, place.block, place.slot);
  }
};

double Score(const Query& query, int key) {
  const PagedAttentionArgs& args = query.args;
  const int head_dim = args.kv->spec().head_dim;
  const int64_t index = int64_t{query.row} * args.num_heads + query.head;
  const float* q = args.q.data() + index * head_dim;
  double score = args.scale * Dot(q, query.Cached(KvPart::kKey, key), head_dim);
  if (args.softcap != 0.0f) score = args.softcap * std::tanh(score / args.softcap);
  if (!args.alibi_slopes.empty()) {
    score += double{args.alibi_slopes.data()[query.head]} * (key - query.position);
  }
  return score;
}

// Turns scratch.scores into exp(score - log_sum_exp) and returns log_sum_exp.
double Softmax(const Query& query, Scratch& scratch) {
  const auto begin = scratch.scores.begin() + query.first_key();
  const auto end = scratch.scores.begin() + query.position + 1;
  const bool has_sink = !query.args.sinks.empty();
  const double sink = has_sink ? double{query.args.sinks.data()[query.head]}
                               : -std::numeric_limits<double>::infinity();
  const double largest = std::max(*std::max_element(begin, end), sink);
  double sum = std::exp(sink - largest);
  for (auto score = begin; score != end; ++score) sum += std::exp(*score - largest);
  const double log_sum_exp = largest + std::log(sum);
  for (auto score = begin; score != end; ++score) *score = std::exp(*score - log_sum_exp);
  return log_sum_exp;
}

void Attend(const Query& query, Scratch& scratch) {
  const PagedAttentionArgs& args = query.args;
  const int head_dim = args.kv->spec().head_dim;
  for (int key = query.first_key(); key <= query.position; ++key) {
    scratch.scores[static_cast<size_t>(key)] = Score(query, key);
  }
  const double log_sum_exp = Softmax(query, scratch);
  float* output = AsRows(args.output).Row(query.row) + query.head * head_dim;
  for (int d = 0; d < head_dim; ++d) {
    double sum = 0;
    for (int key = query.first_key(); key <= query.position; ++key) {
      sum += scratch.scores[static_cast<size_t>(key)] * query.Cached(KvPart::kValue, key)[d];
    }
    output[d] = static_cast<float>(sum);
  }
  if (!args.log_sum_exp.empty()) {
    args.log_sum_exp.data()[int64_t{query.row} * args.num_heads + query.head] =
        static_cast<float>(log_sum_exp);
  }
}

}  // namespace

void PagedAttention(const PagedAttentionArgs& args, Scratch& scratch) {
  ForEachRow(*args.batch, [&](int sequence, int row, int position) {
    VITRINE_CHECK_LT(static_cast<size_t>(position), scratch.scores.size());
    for (int head = 0; head < args.num_heads; ++head) {
      Attend({args, sequence, row, position, head}, scratch);
    }
  });
}

}  // namespace vitrine::reference
