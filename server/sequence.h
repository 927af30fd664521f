// One choice of a request being computed: its tokens so far, its blocks and its counters. Engine
// thread only.
//
// The choices of a request are one sequence until the prompt is computed; then the others come out
// of it and share the prompt's whole blocks, but for the last token, whose logits each needs. From
// there on each is a sequence like any other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "model/kv_cache.h"
#include "server/penalty_history.h"
#include "server/request.h"

namespace vitrine::server {

struct Sequence {
  Sequence(std::shared_ptr<ActiveRequest> active, int choice_index, PrefixChain root,
           uint64_t arrival_number)
      : owner(std::move(active)),
        choice(choice_index),
        penalties(request().sampling, request().stop.max_length),
        root_chain(root),
        chain(root),
        arrival(arrival_number) {
    // All memory it will ever need, so that no step allocates.
    tokens.reserve(static_cast<size_t>(request().stop.max_length));
    for (const TokenId token : request().prompt) Append(token);
    if (choice > 0) traced = prompt_length();
    blocks.reserve(static_cast<size_t>(BlocksFor(kv_limit())));
    if (choice == 0 && request().output.prompt_logprobs >= 0) {
      prompt_logprobs = std::make_unique<std::vector<TokenLogprobs>>();
      prompt_logprobs->reserve(static_cast<size_t>(prompt_length() - 1));
    }
  }

  // All choices of a request, the further ones in `siblings` of the first. `first_arrival` is
  // followed by num_choices - 1 further arrival numbers.
  static std::unique_ptr<Sequence> ForRequest(const std::shared_ptr<ActiveRequest>& active,
                                              const PrefixChain& root, uint64_t first_arrival) {
    auto first = std::make_unique<Sequence>(active, 0, root, first_arrival);
    for (int choice = 1; choice < active->request.num_choices; ++choice) {
      first->siblings.push_back(std::make_unique<Sequence>(
          active, choice, root, first_arrival + static_cast<uint64_t>(choice)));
    }
    return first;
  }

  void Append(TokenId token) {
    tokens.push_back(token);
    penalties.Append(tokens, prompt_length());
  }

  const GenerationRequest& request() const { return owner->request; }
  int length() const { return static_cast<int>(tokens.size()); }
  int prompt_length() const { return static_cast<int>(request().prompt.size()); }
  // Tokens to compute before the next one can be drawn. One: the sequence is decoding.
  int remaining() const { return length() - computed; }
  bool wants_token() const { return length() < request().stop.max_length; }
  // Most tokens whose keys and values it will store: the last token drawn is never computed.
  int kv_limit() const { return std::max(prompt_length(), request().stop.max_length - 1); }
  // Blocks of the prompt that all choices share.
  int shared_blocks() const { return (prompt_length() - 1) / kKvBlockTokens; }
  int num_siblings() const { return static_cast<int>(siblings.size()); }
  // Most blocks that it and its siblings will own.
  int block_limit() const {
    return BlocksFor(kv_limit()) + num_siblings() * (BlocksFor(kv_limit()) - shared_blocks());
  }
  // Blocks that they may still ask for.
  int blocks_to_come() const { return block_limit() - static_cast<int>(blocks.size()); }

  // The next row whose attention is wanted; kNoRow: none.
  int NextTracedRow() const {
    const TraceSpec* trace = request().trace.get();
    return trace == nullptr ? kNoRow : trace->NextRow(std::max(traced, computed));
  }
  // Rows of the planned tokens whose attention is wanted.
  int traced_rows() const {
    const TraceSpec* trace = request().trace.get();
    if (trace == nullptr) return 0;
    return static_cast<int>(trace->RowsIn(std::max(traced, computed), computed + planned));
  }
  // Leading tokens that may come from the prefix cache: not the last one, whose logits are needed,
  // nor any whose successor has yet to be scored or whose attention is wanted.
  int reusable() const {
    int most = length() - 1;
    if (prompt_logprobs != nullptr) {
      most = std::min(most, static_cast<int>(prompt_logprobs->size()));
    }
    if (const TraceSpec* trace = request().trace.get(); trace != nullptr) {
      most = std::min(most, trace->NextRow(traced));
    }
    // A replay computes at least one row that it can be compared by.
    if (const auto& certificates = request().certificates; !certificates.empty()) {
      most = std::min(most, certificates.back().position);
    }
    return most;
  }
  // Rows of the planned step whose successor in the prompt has yet to be scored: positions.
  std::pair<int, int> scored_range() const {
    if (prompt_logprobs == nullptr) return {0, 0};
    const int begin = std::max(computed, static_cast<int>(prompt_logprobs->size()));
    return {begin, std::max(begin, std::min(computed + planned, prompt_length() - 1))};
  }

  // Whether all that it wants of a step is the next token, by the logits as they are.
  bool is_plain() const {
    return request().output.logprobs < 0 && request().trace == nullptr &&
           request().certificates.empty() && owner->record == nullptr && !Adjustment(0).has_value();
  }

  bool is_withholding() const { return length() - prompt_length() < request().stop.min_tokens; }

  // How its next token's logits change; nothing where none does.
  std::optional<LogitAdjustment> Adjustment(int32_t row) const {
    const SamplingParams& sampling = request().sampling;
    LogitAdjustment adjustment = {.row = row,
                                  .biases = sampling.logit_bias,
                                  .allowed = sampling.allowed,
                                  .banned = sampling.banned,
                                  .seen = penalties.seen(),
                                  .repetition_penalty = sampling.repetition_penalty,
                                  .presence_penalty = sampling.presence_penalty,
                                  .frequency_penalty = sampling.frequency_penalty};
    if (is_withholding()) adjustment.withheld = request().stop.withheld;
    const bool is_neutral = adjustment.biases.empty() && adjustment.allowed.empty() &&
                            adjustment.banned.empty() && adjustment.withheld.empty() &&
                            adjustment.seen.empty();
    return is_neutral ? std::nullopt : std::optional(adjustment);
  }

  std::span<const TokenId> BlockTokens(int block) const {
    return std::span(tokens).subspan(static_cast<size_t>(block) * kKvBlockTokens, kKvBlockTokens);
  }

  std::shared_ptr<ActiveRequest> owner;
  int choice;
  std::vector<std::unique_ptr<Sequence>> siblings;  // Not yet started: the prompt comes first.
  std::vector<TokenId> tokens;                      // Prompt, then answer.
  PenaltyHistory penalties;                         // Of tokens.
  int computed = 0;        // Leading tokens whose keys and values are stored.
  int planned = 0;         // Tokens of the step being formed or run.
  bool continues = false;  // After that step, as far as can be said; its blocks suffice.
  // Of the prompt's tokens from the second on, as far as they are known; null: not asked for, or
  // handed over.
  std::unique_ptr<std::vector<TokenLogprobs>> prompt_logprobs;
  // [BlocksFor(computed)] between steps; of BlocksFor(computed + 1) where the runner runs ahead.
  std::vector<int32_t> blocks;
  PrefixChain root_chain;
  PrefixChain chain;          // After the first chained_blocks blocks.
  int chained_blocks = 0;     // Published by this sequence or reused; whole and computed.
  uint64_t arrival;           // Unique, ascending.
  int bypassed = 0;           // Later ones admitted while this one did not fit.
  int furthest_computed = 0;  // Most that `computed` has ever been.
  bool is_running = false;

  // Of a traced request: rows before `traced` have been handed over. Rows are computed again after
  // a preemption, but traced once; those of the prompt by the first choice.
  int traced = 0;
  bool is_paused = false;  // Its reader lags; only for the step being formed.
};

// Order of service: higher priority, then earlier arrival.
inline bool GoesBefore(const Sequence& a, const Sequence& b) {
  const int priority_a = a.request().priority;
  const int priority_b = b.request().priority;
  return priority_a != priority_b ? priority_a > priority_b : a.arrival < b.arrival;
}

}  // namespace vitrine::server
