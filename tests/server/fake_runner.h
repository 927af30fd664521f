// A model whose next token is a hash of its full history. The history is read through the block
// tables from a KV storage, so that any mix-up of sequences, blocks or positions changes tokens.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
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

// The same under an adjustment: biases and penalties change the draw, bans pass it on to the next
// token that may be drawn. A function of the adjustment's sets alone, not of their order.
inline TokenId DrawAdjusted(uint64_t history, const SampleRow& row, const LogitAdjustment& change,
                            int vocabulary) {
  const auto mix = [](double a, double b) {
    return ExtendHistory(std::bit_cast<uint64_t>(a),
                         static_cast<TokenId>(std::bit_cast<uint64_t>(b) >> 32));
  };
  for (const TokenBias& entry : change.biases) history += mix(entry.token_id, entry.bias);
  for (const SeenToken& token : change.seen) {
    history += mix(token.token_id, change.repetition_penalty) +
               static_cast<uint64_t>(token.generated) *
                   mix(change.presence_penalty + 2, change.frequency_penalty);
  }
  const auto holds = [](std::span<const TokenId> ids, TokenId id) {
    return std::ranges::find(ids, id) != ids.end();
  };
  TokenId token = DrawFromHistory(history, row, vocabulary);
  for (int tries = 0; tries < vocabulary; ++tries) {
    const bool is_allowed = change.allowed.empty() || holds(change.allowed, token);
    if (is_allowed && !holds(change.banned, token) && !holds(change.withheld, token)) return token;
    token = (token + 1) % vocabulary;
  }
  return kNoToken;
}

// Log-probabilities that belong to one token after one history.
inline TokenLogprobs FakeLogprobs(uint64_t history, TokenId token, int top_count, bool is_processed,
                                  int vocabulary) {
  const uint64_t x = ExtendHistory(history + (is_processed ? 1 : 0), token);
  TokenLogprobs logprobs = {.logprob = -0.01f * static_cast<float>(x % 997),
                            .rank = 1 + static_cast<int32_t>(x % 5),
                            .top_count = top_count};
  for (int i = 0; i < top_count; ++i) {
    const auto index = static_cast<size_t>(i);
    logprobs.top_ids[index] = static_cast<TokenId>((x + index) % static_cast<uint64_t>(vocabulary));
    logprobs.top_logprobs[index] = -0.5f * static_cast<float>(i);
  }
  return logprobs;
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

// The fake model's weight of the key at `key` for the row at `position`: it depends on all that the
// row has seen, so that rows of another sequence or of another history show.
inline float FakeWeight(uint64_t history, int layer, int head, int key, int position) {
  const uint64_t mixed =
      ExtendHistory(history, static_cast<TokenId>((layer * 64 + head) * 4096 + key));
  const auto raw = static_cast<float>(mixed % 1024 + 1) / 1024.0f;
  return raw / static_cast<float>(position + 1);
}
inline float FakeLogSumExp(uint64_t history, int layer, int head) {
  return static_cast<float>(ExtendHistory(history, layer * 64 + head) % 1000) / 1000.0f;
}

class FakeRunner final : public Runner {
 public:
  explicit FakeRunner(const RunnerLimits& limits)
      : limits_(limits), history_(static_cast<size_t>(limits.num_blocks) * kKvBlockTokens, 0) {}

  const RunnerLimits& limits() const override { return limits_; }

  void Step(const Batch& batch, std::span<TokenId> next) override {
    CheckShape(batch, next);
    if (before_step) before_step(batch);
    logprobs_.clear();
    prompt_logprobs_.clear();
    size_t sample = 0;
    for (int s = 0; s < batch.sequences(); ++s) {
      const auto index = static_cast<size_t>(s);
      for (int row = batch.row_begin[index]; row < batch.row_begin[index + 1]; ++row) {
        const int position = batch.first_position[index] + row - batch.row_begin[index];
        const uint64_t before = position == 0 ? 0 : history_[Slot(batch, s, position - 1)];
        const uint64_t history = ExtendHistory(before, batch.token_ids[static_cast<size_t>(row)]);
        history_[Slot(batch, s, position)] = history;
        Score(batch, row, history);
        if (sample >= next.size() || batch.sampled_rows[sample] != row) continue;
        const SampleRow& draw = batch.sampling[sample];
        VITRINE_CHECK_EQ(draw.position, int64_t{position} + 1);
        next[sample] = is_broken && is_broken(draw) ? kNoToken : Draw(batch, sample, history);
        if (logprobs_.size() < batch.logprobs.size() &&
            batch.logprobs[logprobs_.size()].row == static_cast<int32_t>(sample)) {
          const LogprobsRow& wanted = batch.logprobs[logprobs_.size()];
          logprobs_.push_back(FakeLogprobs(history, next[sample], wanted.top_count,
                                           wanted.is_processed, limits_.vocabulary));
        }
        ++sample;
      }
    }
    VITRINE_CHECK_EQ(sample, next.size());
    VITRINE_CHECK_EQ(logprobs_.size(), batch.logprobs.size());
    VITRINE_CHECK_EQ(prompt_logprobs_.size(), batch.scored.size());
    Scrawl(batch);
    rows += batch.rows();
    ++steps;
  }

  std::span<const TokenLogprobs> logprobs() const override { return logprobs_; }
  std::span<const TokenLogprobs> prompt_logprobs() const override { return prompt_logprobs_; }

  // Only the numbers that the plan asks for, and only weights: statistics are their log-sum-exp and
  // zeros.
  void ReadAttention(const Batch& batch, std::vector<AttentionPiece>& pieces) override {
    int rows_traced = 0;
    for (size_t t = 0; t < batch.traces.size(); ++t) {
      rows_traced += batch.traces[t].rows;
      pieces.push_back(MakePiece(batch, static_cast<int>(t)));
      pieces.back().share = 1.0 / static_cast<double>(batch.traces.size());
    }
    VITRINE_CHECK_LE(rows_traced, limits_.max_traced_rows);
    traced_rows += rows_traced;
  }

  void ReadLogSumExp(const Batch& batch, std::span<float> values) override {
    size_t i = 0;
    for (const int32_t row : batch.certified_rows) {
      const int s = SequenceOfRow(batch, row);
      const auto index = static_cast<size_t>(s);
      const int position = batch.first_position[index] + row - batch.row_begin[index];
      const uint64_t history = history_[Slot(batch, s, position)];
      for (int layer = 0; layer < limits_.num_layers; ++layer) {
        for (int head = 0; head < limits_.num_heads; ++head) {
          values[i++] = FakeLogSumExp(history, layer, head);
        }
      }
    }
    VITRINE_CHECK_EQ(i, values.size());
  }

  absl::Status status() const override {
    return has_failed ? absl::UnavailableError("the fake device failed") : absl::OkStatus();
  }

  std::atomic<bool> has_failed = false;
  std::function<void(const Batch&)> before_step;    // May block, count or look.
  std::function<bool(const SampleRow&)> is_broken;  // The row's logits are not finite.
  std::atomic<int64_t> rows = 0;
  std::atomic<int64_t> steps = 0;
  std::atomic<int64_t> traced_rows = 0;

 private:
  // As a runner that has gone on with tokens that nobody asked for.
  void Scrawl(const Batch& batch) {
    VITRINE_CHECK(limits_.runs_ahead || batch.continuing.empty());
    for (const int32_t s : batch.continuing) {
      history_[Slot(batch, s, batch.first_position[static_cast<size_t>(s)] + 1)] = 0xBAD;
    }
  }

  TokenId Draw(const Batch& batch, size_t sample, uint64_t history) const {
    const SampleRow& draw = batch.sampling[sample];
    if (draw.adjusted_row < 0) return DrawFromHistory(history, draw, limits_.vocabulary);
    const LogitAdjustment& change = batch.adjustments.at(static_cast<size_t>(draw.adjusted_row));
    VITRINE_CHECK_EQ(static_cast<size_t>(change.row), sample);
    return DrawAdjusted(history, draw, change, limits_.vocabulary);
  }

  void Score(const Batch& batch, int row, uint64_t history) {
    const size_t next = prompt_logprobs_.size();
    if (next == batch.scored.size() || batch.scored[next].row != row) return;
    const LogprobsRow& wanted = batch.scored[next];
    prompt_logprobs_.push_back(FakeLogprobs(history, wanted.token_id, wanted.top_count,
                                            wanted.is_processed, limits_.vocabulary));
  }

  static int SequenceOfRow(const Batch& batch, int row) {
    int s = 0;
    while (row >= batch.row_begin[static_cast<size_t>(s) + 1]) ++s;
    return s;
  }

  AttentionPiece MakePiece(const Batch& batch, int trace) const {
    const TracedRows& run = batch.traces[static_cast<size_t>(trace)];
    const AttentionPlan& plan = *run.plan;
    const auto index = static_cast<size_t>(run.sequence);
    AttentionPiece piece;
    piece.trace = trace;
    piece.first_position = batch.first_position[index] + run.first_row - batch.row_begin[index];
    piece.rows = run.rows;
    piece.layers = plan.layer_axis();
    piece.heads = plan.head_axis();
    piece.key_columns = piece.first_position + piece.rows;
    const auto columns = static_cast<size_t>(piece.key_columns);
    const size_t results = static_cast<size_t>(plan.cells()) * static_cast<size_t>(run.rows);
    const auto top_k = static_cast<size_t>(plan.top_k);
    const auto spans = static_cast<size_t>(plan.spans());
    const size_t size = results * (kAttentionStats + 2 * top_k + 1 + spans + columns);
    const std::shared_ptr<float[]> memory(new float[size]());
    piece.memory = memory;
    size_t end = 0;
    const auto place = [&](size_t per_result) {
      float* const begin = memory.get() + end;
      end += results * per_result;
      return std::span<float>(begin, results * per_result);
    };
    const std::span<float> stats = place(plan.wants_stats ? kAttentionStats : 0);
    const std::span<float> keys = place(top_k);
    const std::span<float> tops = place(top_k);
    const std::span<float> tails = place(top_k > 0 ? 1 : 0);
    const std::span<float> masses = place(spans);
    const std::span<float> values = place(plan.wants_rows ? columns : 0);
    for (size_t r = 0; r < results; ++r) {
      const auto cell = static_cast<int>(r) / run.rows;
      const int layer = plan.layers[static_cast<size_t>(cell / plan.head_axis())];
      const int head = plan.heads[static_cast<size_t>(cell % plan.head_axis())];
      const int position = piece.first_position + static_cast<int>(r) % run.rows;
      const uint64_t history = history_[Slot(batch, run.sequence, position)];
      const auto weight = [&](int key) { return FakeWeight(history, layer, head, key, position); };
      if (!stats.empty()) stats[r * kAttentionStats] = FakeLogSumExp(history, layer, head);
      for (size_t k = 0; k < top_k; ++k) {
        const bool is_key = static_cast<int>(k) <= position;
        const uint32_t key = is_key ? static_cast<uint32_t>(k) : kNoKey;
        std::memcpy(&keys[r * top_k + k], &key, sizeof(key));
        tops[r * top_k + k] = is_key ? weight(static_cast<int>(k)) : 0.0f;
      }
      if (!tails.empty()) tails[r] = weight(position);
      for (size_t s = 0; s < spans; ++s) masses[r * spans + s] = weight(static_cast<int>(s));
      for (int key = 0; !values.empty() && key <= position; ++key) {
        values[r * columns + static_cast<size_t>(key)] = weight(key);
      }
    }
    if (plan.wants_stats) piece.stats = stats;
    piece.top_keys = {reinterpret_cast<const uint32_t*>(keys.data()), keys.size()};
    piece.top_values = tops;
    piece.tail_mass = tails;
    piece.span_mass = masses;
    piece.values = values;
    return piece;
  }

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
  std::vector<TokenLogprobs> logprobs_;
  std::vector<TokenLogprobs> prompt_logprobs_;
};

}  // namespace vitrine::server
