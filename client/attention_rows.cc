#include "client/attention_rows.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "client/attention_assembly.h"
#include "vitrine/v1/attention.pb.h"

namespace vitrine::client {
namespace {

constexpr float kNothing = std::numeric_limits<float>::quiet_NaN();

}  // namespace

std::vector<size_t> SelectRows(const AttentionArray& array, size_t prompt_tokens, uint32_t choice,
                               std::optional<int64_t> token) {
  std::vector<size_t> selected;
  for (size_t i = 0; i < array.rows.size(); ++i) {
    const AttentionRowId& row = array.rows[i];
    if (row.position < prompt_tokens || row.choice == choice) selected.push_back(i);
  }
  // Rows of the prompt carry choice 0 and so come first only for that one.
  std::sort(selected.begin(), selected.end(), [&array](size_t a, size_t b) {
    return array.rows[a].position < array.rows[b].position;
  });
  if (!token) return selected;
  if (*token < 0) {
    const auto back = static_cast<uint64_t>(-*token);
    if (back > selected.size()) return {};
    return {selected[selected.size() - back]};
  }
  for (const size_t i : selected) {
    if (array.rows[i].position == static_cast<uint64_t>(*token)) return {i};
  }
  return {};
}

std::vector<float> CombineHeads(const AttentionArray& array, size_t row, bool take_max) {
  const size_t heads = array.dims[0] * array.dims[1];
  std::vector<double> sums(array.dims[3], take_max ? -HUGE_VAL : 0.0);
  for (size_t layer = 0; layer < array.dims[0]; ++layer) {
    for (size_t head = 0; head < array.dims[1]; ++head) {
      const size_t begin = array.RowBegin(layer, head, row);
      for (size_t i = 0; i < sums.size(); ++i) {
        const double value = array.values[begin + i];
        sums[i] = take_max ? std::max(sums[i], value) : sums[i] + value;
      }
    }
  }
  std::vector<float> combined;
  combined.reserve(sums.size());
  for (const double sum : sums) {
    combined.push_back(static_cast<float>(take_max ? sum : sum / static_cast<double>(heads)));
  }
  return combined;
}

std::vector<float> KeyWeights(const AttentionArray& array, size_t row, size_t tokens,
                              bool take_max) {
  const uint32_t position = array.rows[row].position;
  std::vector<float> weights(tokens, kNothing);
  if (array.kind == v1::ATTENTION_OUTPUT_KIND_DENSE) {
    const std::vector<float> combined = CombineHeads(array, row, take_max);
    for (size_t i = 0; i < combined.size(); ++i) {
      const uint32_t key = array.last[i];
      if (key < tokens && key <= position) weights[key] = combined[i];
    }
    return weights;
  }
  std::vector<double> sums(tokens);
  for (size_t layer = 0; layer < array.dims[0]; ++layer) {
    for (size_t head = 0; head < array.dims[1]; ++head) {
      const size_t begin = array.RowBegin(layer, head, row);
      for (size_t i = begin; i < begin + array.dims[3]; ++i) {
        const uint32_t key = array.top_keys[i];
        if (key >= tokens) continue;
        const double value = array.values[i];
        sums[key] = take_max ? std::max(sums[key], value) : sums[key] + value;
      }
    }
  }
  const double share = take_max ? 1.0 : 1.0 / static_cast<double>(array.dims[0] * array.dims[1]);
  for (size_t key = 0; key < tokens && key <= position; ++key) {
    weights[key] = static_cast<float>(share * sums[key]);
  }
  return weights;
}

std::vector<size_t> LargestOf(const std::vector<float>& weights, size_t count) {
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Written so that NaN goes.
  std::erase_if(order, [&weights](size_t i) { return !(weights[i] > 0.0f); });
  std::stable_sort(order.begin(), order.end(),
                   [&weights](size_t a, size_t b) { return weights[a] > weights[b]; });
  order.resize(std::min(order.size(), count));
  return order;
}

std::vector<size_t> WarmColumns(const std::vector<TokenRow>& rows, size_t columns, double threshold,
                                size_t neighbourhood) {
  std::vector<bool> is_warm(columns);
  for (const TokenRow& row : rows) {
    for (size_t c = 0; c < columns; ++c) {
      if (!(row.weights[c] >= threshold)) continue;
      const size_t begin = c - std::min(c, neighbourhood);
      const size_t end = std::min(columns, c + neighbourhood + 1);
      for (size_t near = begin; near < end; ++near) is_warm[near] = true;
    }
  }
  std::vector<size_t> shown;
  for (size_t c = 0; c < columns; ++c) {
    if (is_warm[c]) {
      shown.push_back(c);
    } else if (shown.empty() || shown.back() != kGap) {
      shown.push_back(kGap);
    }
  }
  return shown;
}

}  // namespace vitrine::client
