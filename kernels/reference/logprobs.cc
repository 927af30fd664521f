#include "kernels/reference/logprobs.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "kernels/sampling_math.h"

namespace vitrine::reference {
namespace {

LogprobsResult RowLogprobs(std::span<const float> logits, int32_t token, const LogprobsRow& row,
                           const SampleRow& sampling) {
  LogprobsResult result;
  const int32_t best = ArgMax(logits);
  if (best == kNoToken || token < 0) return result;
  const auto logit = [&](int32_t id) { return logits[static_cast<size_t>(id)]; };
  const SampleFilter filter = LogprobsFilter(logits, best, row, sampling);
  result.top_logit = filter.top;
  result.temperature = filter.temperature;
  result.logit = logit(token);

  std::vector<int32_t> ids;  // Of the distribution, the most probable first.
  for (int32_t id = 0; id < static_cast<int32_t>(logits.size()); ++id) {
    const uint64_t weight = filter.Weight(logit(id), id);
    result.total_weight += weight;
    if (row.is_processed ? weight > 0 : LogitKey(logit(id)) > kNegativeInfinityKey) {
      ids.push_back(id);
    }
  }
  const auto order = [&](int32_t id) { return std::pair(~LogitKey(logit(id)), id); };
  std::ranges::sort(ids, {}, order);
  const auto place = std::ranges::lower_bound(ids, order(token), {}, order);
  result.rank = static_cast<int32_t>(place - ids.begin()) + 1;
  result.top_count = std::min(row.top_count, static_cast<int32_t>(ids.size()));
  for (int i = 0; i < result.top_count; ++i) {
    result.top_ids[i] = ids[static_cast<size_t>(i)];
    result.top_logits[i] = logit(result.top_ids[i]);
  }
  return result;
}

}  // namespace

void Logprobs(const LogprobsArgs& args) {
  for (size_t i = 0; i < args.rows.size(); ++i) {
    const LogprobsRow& row = args.rows[i];
    args.output.data()[i] =
        RowLogprobs(args.LogitsOf(row), args.TokenOf(row), row, args.SamplingOf(row));
  }
}

}  // namespace vitrine::reference
