#include "model/expert_routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/check.h"

namespace vitrine {

ExpertRouting::ExpertRouting(const ExpertConfig& config, int max_rows)
    : config_(config),
      likelihoods_(static_cast<size_t>(config.count)),
      begin_(static_cast<size_t>(config.count) + 1),
      all_ids_(static_cast<size_t>(max_rows)),
      shared_(static_cast<size_t>(max_rows)) {
  const size_t choices = static_cast<size_t>(max_rows) * static_cast<size_t>(config.per_token);
  chosen_.resize(choices);
  weights_.resize(choices);
  ids_.resize(choices);
  scales_.resize(choices);
  std::iota(all_ids_.begin(), all_ids_.end(), 0);
}

void ExpertRouting::ChooseRow(std::span<const float> logits, int row) {
  const auto count = static_cast<size_t>(config_.count);
  const auto per_token = static_cast<size_t>(config_.per_token);
  const float largest = *std::max_element(logits.begin(), logits.begin() + config_.count);
  double sum = 0.0;
  for (size_t e = 0; e < count; ++e) {
    likelihoods_[e] = std::exp(static_cast<double>(logits[e]) - largest);
    sum += likelihoods_[e];
  }
  const auto chosen = std::span(chosen_).subspan(static_cast<size_t>(row) * per_token, per_token);
  for (size_t i = 0; i < per_token; ++i) {
    const auto before = chosen.first(i);
    int32_t best = -1;
    for (int32_t e = 0; e < config_.count; ++e) {
      if (std::ranges::find(before, e) != before.end()) continue;
      const bool is_better = best < 0 || likelihoods_[static_cast<size_t>(e)] >
                                             likelihoods_[static_cast<size_t>(best)];
      if (is_better) best = e;
    }
    chosen[i] = best;
  }
  std::ranges::sort(chosen);
  if (config_.normalizes_weights) {
    sum = 0.0;
    for (const int32_t e : chosen) sum += likelihoods_[static_cast<size_t>(e)];
  }
  for (size_t i = 0; i < per_token; ++i) {
    weights_[static_cast<size_t>(row) * per_token + i] =
        static_cast<float>(likelihoods_[static_cast<size_t>(chosen[i])] / sum);
  }
}

void ExpertRouting::Choose(std::span<const float> logits, int rows) {
  VITRINE_CHECK_LE(static_cast<size_t>(rows), all_ids_.size());
  rows_ = rows;
  const auto width = static_cast<size_t>(columns());
  for (int row = 0; row < rows; ++row) {
    const std::span<const float> own = logits.subspan(static_cast<size_t>(row) * width, width);
    ChooseRow(own, row);
    if (config_.d_shared == 0) continue;
    shared_[static_cast<size_t>(row)] =
        static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(own.back()))));
  }
  // Sorts by expert, rows in their order.
  const auto per_token = static_cast<size_t>(config_.per_token);
  const size_t choices = static_cast<size_t>(rows) * per_token;
  std::ranges::fill(begin_, 0);
  for (size_t i = 0; i < choices; ++i) ++begin_[static_cast<size_t>(chosen_[i]) + 1];
  std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
  for (size_t i = 0; i < choices; ++i) {
    const size_t place = begin_[static_cast<size_t>(chosen_[i])]++;
    ids_[place] = static_cast<int32_t>(i / per_token);
    scales_[place] = weights_[i];
  }
  std::shift_right(begin_.begin(), begin_.end(), 1);
  begin_.front() = 0;
}

ExpertRouting::Rows ExpertRouting::OfExpert(int expert) const {
  const size_t begin = begin_[static_cast<size_t>(expert)];
  const size_t size = begin_[static_cast<size_t>(expert) + 1] - begin;
  return {std::span(ids_).subspan(begin, size), std::span(scales_).subspan(begin, size)};
}

ExpertRouting::Rows ExpertRouting::OfShared() const {
  const auto size = static_cast<size_t>(rows_);
  return {std::span(all_ids_).first(size), std::span(shared_).first(size)};
}

}  // namespace vitrine
