// What the penalties of one sequence see: the distinct tokens of its last window, with their
// counts. Adding a token costs the same however long the sequence is, and allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/batch.h"
#include "server/request.h"

namespace vitrine::server {

class PenaltyHistory {
 public:
  // For a sequence of at most `max_length` tokens. Costs nothing where `sampling` has no penalties.
  PenaltyHistory(const SamplingParams& sampling, int max_length);

  // `tokens` has got its last one; the first `prompt_length` are the prompt. Called for every
  // length from 1 on.
  void Append(std::span<const TokenId> tokens, int prompt_length);

  // In no particular order; valid until the next Append.
  std::span<const SeenToken> seen() const { return seen_; }

 private:
  void Count(TokenId id, bool is_generated);
  void Forget(TokenId id, bool is_generated);
  size_t Home(TokenId id) const;
  size_t SlotOf(TokenId id) const;
  void EraseSlot(size_t slot);

  const bool is_active_;
  const bool sees_prompt_;  // Only the repetition penalty minds what the prompt holds.
  const size_t window_;
  std::vector<SeenToken> seen_;
  std::vector<int32_t> occurrences_;  // [seen_.size()], prompt and answer together
  // Open addressing with linear probing, at most half full: index in seen_, or kEmpty.
  std::vector<int32_t> slots_;
};

}  // namespace vitrine::server
