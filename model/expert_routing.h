// Which rows of a step go to which experts of a mixture (Shazeer et al., 2017).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"

namespace vitrine {

// Reused from layer to layer without allocating. One thread at a time.
class ExpertRouting {
 public:
  ExpertRouting(const ExpertConfig& config, int max_rows);

  // Chooses for each of `rows` rows the experts of the largest logits, of equal ones the first;
  // their weights are those of a softmax over all. A row's choice depends on its own logits only.
  // `logits` is [rows, columns()]: those of the experts, then of the shared one where there is one.
  void Choose(std::span<const float> logits, int rows);

  int columns() const { return config_.count + (config_.d_shared > 0 ? 1 : 0); }

  // Rows, in ascending order, and what each weighs. Valid until the next Choose.
  struct Rows {
    std::span<const int32_t> ids;
    std::span<const float> scales;

    int size() const { return static_cast<int>(ids.size()); }
  };
  Rows OfExpert(int expert) const;
  // All rows, with the weight of the shared expert.
  Rows OfShared() const;

 private:
  void ChooseRow(std::span<const float> logits, int row);

  const ExpertConfig config_;
  int rows_ = 0;
  std::vector<double> likelihoods_;  // [count], of one row
  std::vector<int32_t> chosen_;      // [rows, per_token], ascending in each row
  std::vector<float> weights_;       // [rows, per_token]
  std::vector<size_t> begin_;        // [count + 1], where each expert's rows begin
  std::vector<int32_t> ids_;         // [rows * per_token], by expert
  std::vector<float> scales_;        // [rows * per_token]
  std::vector<int32_t> all_ids_;     // [max_rows], 0 1 2 ...
  std::vector<float> shared_;        // [rows]
};

}  // namespace vitrine
