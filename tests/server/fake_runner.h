// A model whose next token is a hash of its full history. The history is read through the block
// tables from a KV storage, so that any mix-up of sequences, blocks or positions changes tokens.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/check.h"
#include "kernels/philox.h"
#include "model/kv_cache.h"
#include "model/runner.h"
#include "model/tokenizer.h"

namespace vitrine::server {

// Tokens are bytes, then a few longer ones that cut characters and stop strings, then controls.
class FakeTokenizer final : public Tokenizer {
 public:
  FakeTokenizer() {
    for (int byte = 0; byte < 256; ++byte) tokens_.emplace_back(1, static_cast<char>(byte));
    for (const char* text : {"\xF0\x9F", "\x98\x80", "\xE4\xB8\xAD", "\xE4\xB8", "stop", "st",
                             "op now", "the ", "cat", " \xC3", "\xA9t\xC3\xA9", "\n\n"}) {
      tokens_.emplace_back(text);
    }
    eos_.push_back(static_cast<TokenId>(tokens_.size()));
    tokens_.emplace_back("<eos>");
    bos_ = static_cast<TokenId>(tokens_.size());
    tokens_.emplace_back("<bos>");
  }

  // One token per byte.
  absl::StatusOr<Encoding> Encode(std::string_view text,
                                  const EncodeOptions& options) const override {
    Encoding encoding;
    if (options.add_bos) {
      encoding.ids.push_back(bos_);
      encoding.byte_offsets.push_back(0);
    }
    for (size_t i = 0; i < text.size(); ++i) {
      encoding.ids.push_back(static_cast<uint8_t>(text[i]));
      encoding.byte_offsets.push_back(static_cast<uint32_t>(i));
    }
    return encoding;
  }
  std::string_view TokenBytes(TokenId id) const override {
    return tokens_.at(static_cast<size_t>(id));
  }
  bool IsControl(TokenId id) const override { return id >= eos_.front(); }
  int vocabulary() const override { return static_cast<int>(tokens_.size()); }
  std::string_view kind() const override { return "fake"; }
  const std::vector<TokenId>& eos_ids() const override { return eos_; }
  TokenId bos_id() const override { return bos_; }

  std::string Decode(std::span<const TokenId> ids) const override {
    std::string text;
    for (const TokenId id : ids) text += TokenBytes(id);
    return text;
  }

 private:
  std::vector<std::string> tokens_;
  std::vector<TokenId> eos_;
  TokenId bos_ = -1;
};

// What FakeRunner stores per token: a hash of the tokens up to and including it.
inline uint64_t ExtendHistory(uint64_t history, TokenId token) {
  uint64_t x = history ^ (static_cast<uint64_t>(token) + 0x9E3779B97F4A7C15u);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

inline TokenId DrawFromHistory(uint64_t history, const SampleRow& row, int vocabulary) {
  if (row.temperature > 0) history ^= RandomBits(row.seed, row.position, row.choice);
  return static_cast<TokenId>(history % static_cast<uint64_t>(vocabulary));
}

// The answer that a request must get whatever runs beside it.
inline std::vector<TokenId> ExpectedTokens(std::vector<TokenId> tokens, int count, SampleRow row,
                                           int vocabulary) {
  uint64_t history = 0;
  for (const TokenId token : tokens) history = ExtendHistory(history, token);
  std::vector<TokenId> answer;
  for (int i = 0; i < count; ++i) {
    row.position = static_cast<int64_t>(tokens.size() + answer.size());
    answer.push_back(DrawFromHistory(history, row, vocabulary));
    history = ExtendHistory(history, answer.back());
  }
  return answer;
}

class FakeRunner final : public Runner {
 public:
  explicit FakeRunner(const RunnerLimits& limits)
      : limits_(limits), history_(static_cast<size_t>(limits.num_blocks) * kKvBlockTokens, 0) {}

  const RunnerLimits& limits() const override { return limits_; }

  void Step(const Batch& batch, std::span<TokenId> next) override {
    CheckShape(batch, next);
    if (before_step) before_step(batch);
    size_t sample = 0;
    for (int s = 0; s < batch.sequences(); ++s) {
      const auto index = static_cast<size_t>(s);
      for (int row = batch.row_begin[index]; row < batch.row_begin[index + 1]; ++row) {
        const int position = batch.first_position[index] + row - batch.row_begin[index];
        const uint64_t before = position == 0 ? 0 : history_[Slot(batch, s, position - 1)];
        const uint64_t history = ExtendHistory(before, batch.token_ids[static_cast<size_t>(row)]);
        history_[Slot(batch, s, position)] = history;
        if (sample >= next.size() || batch.sampled_rows[sample] != row) continue;
        const SampleRow& draw = batch.sampling[sample];
        VITRINE_CHECK_EQ(draw.position, int64_t{position} + 1);
        next[sample] = is_broken && is_broken(draw)
                           ? kNoToken
                           : DrawFromHistory(history, draw, limits_.vocabulary);
        ++sample;
      }
    }
    VITRINE_CHECK_EQ(sample, next.size());
    rows += batch.rows();
    ++steps;
  }

  std::function<void(const Batch&)> before_step;    // May block, count or look.
  std::function<bool(const SampleRow&)> is_broken;  // The row's logits are not finite.
  std::atomic<int64_t> rows = 0;
  std::atomic<int64_t> steps = 0;

 private:
  void CheckShape(const Batch& batch, std::span<TokenId> next) const {
    VITRINE_CHECK_LE(1, batch.rows());
    VITRINE_CHECK_LE(batch.rows(), limits_.max_step_rows);
    VITRINE_CHECK_LE(batch.sequences(), limits_.max_step_sequences);
    VITRINE_CHECK_EQ(batch.sampled_rows.size(), next.size());
    VITRINE_CHECK_EQ(batch.block_table.size(), static_cast<size_t>(batch.sequences()) *
                                                   static_cast<size_t>(batch.max_blocks));
  }

  size_t Slot(const Batch& batch, int sequence, int position) const {
    const int index = sequence * batch.max_blocks + position / kKvBlockTokens;
    const int block = batch.block_table[static_cast<size_t>(index)];
    VITRINE_CHECK(block >= 0 && block < limits_.num_blocks);
    return static_cast<size_t>(block) * kKvBlockTokens +
           static_cast<size_t>(position % kKvBlockTokens);
  }

  RunnerLimits limits_;
  std::vector<uint64_t> history_;  // [num_blocks, kKvBlockTokens]
};

}  // namespace vitrine::server
