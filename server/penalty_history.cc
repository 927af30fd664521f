#include "server/penalty_history.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace vitrine::server {
namespace {

constexpr int32_t kEmpty = -1;

}  // namespace

PenaltyHistory::PenaltyHistory(const SamplingParams& sampling, int max_length)
    : is_active_(sampling.has_penalties()),
      sees_prompt_(sampling.repetition_penalty != 1.0f),
      window_(sampling.penalty_window < 0 ? std::numeric_limits<size_t>::max()
                                          : static_cast<size_t>(sampling.penalty_window)) {
  if (!is_active_) return;
  const size_t most = std::min(static_cast<size_t>(max_length), window_);
  seen_.reserve(most);
  occurrences_.reserve(most);
  slots_.assign(std::bit_ceil(2 * most + 1), kEmpty);
}

void PenaltyHistory::Append(std::span<const TokenId> tokens, int prompt_length) {
  if (!is_active_) return;
  const auto prompt = static_cast<size_t>(prompt_length);
  const size_t newest = tokens.size() - 1;
  // Who leaves goes first, so that a full window has room.
  if (newest >= window_) Forget(tokens[newest - window_], newest - window_ >= prompt);
  Count(tokens[newest], newest >= prompt);
}

void PenaltyHistory::Count(TokenId id, bool is_generated) {
  if (!is_generated && !sees_prompt_) return;
  const size_t slot = SlotOf(id);
  if (slots_[slot] == kEmpty) {
    slots_[slot] = static_cast<int32_t>(seen_.size());
    seen_.push_back({.token_id = id});
    occurrences_.push_back(0);
  }
  const auto index = static_cast<size_t>(slots_[slot]);
  ++occurrences_[index];
  if (is_generated) ++seen_[index].generated;
}

void PenaltyHistory::Forget(TokenId id, bool is_generated) {
  if (!is_generated && !sees_prompt_) return;
  const size_t slot = SlotOf(id);
  const auto index = static_cast<size_t>(slots_[slot]);
  if (is_generated) --seen_[index].generated;
  if (--occurrences_[index] > 0) return;
  // The last entry takes its place.
  const size_t last_slot = SlotOf(seen_.back().token_id);
  slots_[last_slot] = static_cast<int32_t>(index);
  seen_[index] = seen_.back();
  occurrences_[index] = occurrences_.back();
  EraseSlot(slot);
  seen_.pop_back();
  occurrences_.pop_back();
}

size_t PenaltyHistory::Home(TokenId id) const {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;
  return static_cast<size_t>((static_cast<uint64_t>(id) * kGolden) >> 32) & (slots_.size() - 1);
}

size_t PenaltyHistory::SlotOf(TokenId id) const {
  size_t slot = Home(id);
  while (slots_[slot] != kEmpty && seen_[static_cast<size_t>(slots_[slot])].token_id != id) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

// Knuth, The Art of Computer Programming, volume 3, section 6.4, algorithm R: later entries of the
// same run move up, so that no mark of the deletion stays behind.
void PenaltyHistory::EraseSlot(size_t slot) {
  const size_t mask = slots_.size() - 1;
  size_t gap = slot;
  for (size_t next = (slot + 1) & mask; slots_[next] != kEmpty; next = (next + 1) & mask) {
    const size_t home = Home(seen_[static_cast<size_t>(slots_[next])].token_id);
    const bool may_move = ((next - home) & mask) >= ((next - gap) & mask);
    if (!may_move) continue;
    slots_[gap] = slots_[next];
    gap = next;
  }
  slots_[gap] = kEmpty;
}

}  // namespace vitrine::server
