// What the pictures draw: rows of weights over all tokens of a sequence, one per token that looked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/attention_assembly.h"
#include "client/sequence_tokens.h"

namespace vitrine::client {

struct TokenRow {
  uint32_t position = 0;       // Of the token that looked.
  std::vector<float> weights;  // Per column; NaN: not visible, or not asked for.
};

// Which rows of an array belong to an answer: those of the prompt and those of `choice`; with
// `token` only that position, counted from the end when negative.
std::vector<size_t> SelectRows(const AttentionArray& array, size_t prompt_tokens, uint32_t choice,
                               std::optional<int64_t> token);

// One number per column of an array's last axis, layers and heads taken together by mean or max.
std::vector<float> CombineHeads(const AttentionArray& array, size_t row, bool take_max);

// Weights over `tokens` keys, from DENSE or TOP_K; TOP_K leaves 0 where a key was not on top.
std::vector<float> KeyWeights(const AttentionArray& array, size_t row, size_t tokens,
                              bool take_max);

// Indices of the `count` largest numbers above 0, largest first.
std::vector<size_t> LargestOf(const std::vector<float>& weights, size_t count);

// Columns worth showing of a wide picture: those in whose neighbourhood some row reaches
// `threshold`. kGap stands for what was left out.
inline constexpr size_t kGap = SIZE_MAX;
std::vector<size_t> WarmColumns(const std::vector<TokenRow>& rows, size_t columns, double threshold,
                                size_t neighbourhood);

}  // namespace vitrine::client
