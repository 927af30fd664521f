#include "kernels/cpu/logprobs.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace vitrine::cpu {
namespace {

// Larger for the more probable token; of equal ones, for the lower id.
uint64_t OrderOf(float logit, int32_t id) {
  return uint64_t{LogitKey(logit)} << 32 | ~static_cast<uint32_t>(id);
}

// The largest values of a stream: a new one is rarely among them, and then it is inserted.
class Largest {
 public:
  explicit Largest(int32_t count) : count_(count) {}

  void Add(uint64_t value) {
    if (count_ == 0 || value <= values_[static_cast<size_t>(count_) - 1]) return;
    auto place = static_cast<size_t>(count_) - 1;
    for (; place > 0 && values_[place - 1] < value; --place) values_[place] = values_[place - 1];
    values_[place] = value;
  }
  std::span<const uint64_t> values() const {
    return std::span(values_).first(static_cast<size_t>(count_));
  }

 private:
  int32_t count_;
  std::array<uint64_t, kMaxTopLogprobs> values_ = {};  // Descending; 0: none yet.
};

// Of a place in `logits`; the ids of the result are places as well.
LogprobsResult PlaceLogprobs(std::span<const float> logits, int32_t token, const LogprobsRow& row,
                             const SampleRow& sampling, uint64_t left_out) {
  LogprobsResult result;
  const int32_t best = ArgMax(logits);
  if (best == kNoToken || token < 0) return result;
  const SampleFilter filter = LogprobsFilter(logits, best, row, sampling, left_out);
  result.top_logit = filter.top;
  result.temperature = filter.temperature;
  result.logit = logits[static_cast<size_t>(token)];

  const uint64_t least = uint64_t{kNegativeInfinityKey + 1} << 32;
  const uint64_t order_of_token = OrderOf(result.logit, token);
  Largest largest(row.top_count);
  result.rank = 1;
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const uint64_t weight = filter.Weight(logits[i], id);
    result.total_weight += weight;
    const uint64_t order = OrderOf(logits[i], id);
    if (row.is_processed ? weight == 0 : order < least) continue;
    result.rank += order > order_of_token ? 1 : 0;
    largest.Add(order);
  }
  for (const uint64_t order : largest.values()) {
    if (order == 0) break;
    const int32_t id = static_cast<int32_t>(~static_cast<uint32_t>(order));
    result.top_ids[result.top_count] = id;
    result.top_logits[result.top_count++] = logits[static_cast<size_t>(id)];
  }
  return result;
}

}  // namespace

LogprobsResult TokenLogprobs(std::span<const float> logits, int32_t token, const LogprobsRow& row,
                             const SampleRow& sampling) {
  return PlaceLogprobs(logits, token, row, sampling, 0);
}

int32_t PlaceOf(const Candidates& some, int32_t token) {
  const auto found = std::ranges::lower_bound(some.ids, token);
  if (found == some.ids.end() || *found != token) return kNoToken;
  return static_cast<int32_t>(found - some.ids.begin());
}

LogprobsResult CandidateLogprobs(const Candidates& some, int32_t place, const LogprobsRow& row,
                                 const SampleRow& sampling) {
  LogprobsResult result = PlaceLogprobs(some.logits, place, row, sampling, some.left_out);
  for (int32_t& id : std::span(result.top_ids).first(static_cast<size_t>(result.top_count))) {
    id = some.ids[static_cast<size_t>(id)];
  }
  return result;
}

}  // namespace vitrine::cpu
