// The step after a decode step, guessed, so that the device goes on while the host still learns
// what was drawn: every sequence that means to continue takes the token it draws. A guess counts as
// far as the step asked for next holds the same rows, and is dropped otherwise; what it has stored
// by then lies in blocks that no other sequence reads before it has written them itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/batch.h"

namespace vitrine {

class StepAhead {
 public:
  // Of steps within these limits nothing allocates.
  StepAhead(int max_rows, int max_sequences, int max_sequence_blocks);

  // The step that follows `batch`, whose samples are drawn to `places` ([samples]: indices of
  // EmbedArgs::drawn). Null where `batch` is no decode step of which sequences continue, or is more
  // than rows and tokens. Valid until the next call.
  const Batch* Guess(const Batch& batch, std::span<const int32_t> places);

  // What the samples of the batch that was guessed from drew, once that is known.
  void NoteDrawn(std::span<const TokenId> drawn);

  // What the guess answers of a step.
  struct Answer {
    // Per sample of the step, the sample of the guess that is the same; -1: the next of `rest`.
    // Empty: all -1.
    std::span<const int32_t> samples;
    const Batch* rest;  // What else the step holds; null: nothing. Valid as long as `batch` is.
  };
  // `batch` is the step asked for next, which uses the guess up. `samples` is valid until then.
  Answer Take(const Batch& batch);

 private:
  int Find(const Batch& batch, size_t sequence, size_t sample, size_t from) const;
  void AddToRest(const Batch& batch, size_t sequence, size_t first_sample, size_t end_sample);

  Batch guess_;
  bool has_guess_ = false;
  std::vector<int32_t> origins_;  // Per sequence of the guess: sample that it was guessed from.
  std::vector<TokenId> tokens_;   // Per sequence of the guess: what that drew.
  std::vector<int32_t> answers_;
  Batch rest_;
};

}  // namespace vitrine
