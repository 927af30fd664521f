#include "model/step_ahead.h"

#include <algorithm>

#include "kernels/check.h"
#include "kernels/embed.h"
#include "model/kv_cache.h"

namespace vitrine {
namespace {

// Whether the results of a step are its tokens alone.
bool IsPlain(const Batch& batch) {
  return batch.adjustments.empty() && batch.logprobs.empty() && batch.scored.empty() &&
         batch.traces.empty() && batch.certified_rows.empty();
}

std::span<const int32_t> TableOf(const Batch& batch, size_t sequence) {
  const auto width = static_cast<size_t>(batch.max_blocks);
  return std::span(batch.block_table).subspan(sequence * width, width);
}

void Reserve(Batch& batch, size_t rows, size_t sequences, size_t blocks) {
  batch.token_ids.reserve(rows);
  batch.row_begin.reserve(sequences + 1);
  batch.first_position.reserve(sequences);
  batch.block_table.reserve(sequences * blocks);
  batch.sampled_rows.reserve(sequences);
  batch.sampling.reserve(sequences);
}

}  // namespace

StepAhead::StepAhead(int max_rows, int max_sequences, int max_sequence_blocks) {
  const auto sequences = static_cast<size_t>(max_sequences);
  const auto blocks = static_cast<size_t>(max_sequence_blocks);
  Reserve(guess_, sequences, sequences, blocks);
  Reserve(rest_, static_cast<size_t>(max_rows), sequences, blocks);
  origins_.reserve(sequences);
  tokens_.reserve(sequences);
  answers_.reserve(sequences);
}

const Batch* StepAhead::Guess(const Batch& batch, std::span<const int32_t> places) {
  const auto sequences = static_cast<size_t>(batch.sequences());
  const bool decodes =
      IsPlain(batch) && batch.token_ids.size() == sequences && batch.sampling.size() == sequences;
  has_guess_ = decodes && !batch.continuing.empty();
  if (!has_guess_) return nullptr;
  VITRINE_CHECK_EQ(places.size(), sequences);
  guess_.Clear();
  origins_.clear();
  tokens_.clear();
  guess_.max_blocks = batch.max_blocks;
  for (const int32_t sequence : batch.continuing) {
    // Each has one row and one sample.
    const auto index = static_cast<size_t>(sequence);
    const std::span<const int32_t> table = TableOf(batch, index);
    const int32_t position = batch.first_position[index] + 1;
    VITRINE_CHECK_LE(BlocksFor(position + 1), batch.max_blocks);
    guess_.sampled_rows.push_back(guess_.rows());
    guess_.token_ids.push_back(DrawnToken(places[index]));
    guess_.row_begin.push_back(guess_.rows());
    guess_.first_position.push_back(position);
    guess_.block_table.insert(guess_.block_table.end(), table.begin(), table.end());
    guess_.sampling.push_back(batch.sampling[index]);
    ++guess_.sampling.back().position;
    origins_.push_back(sequence);
  }
  return &guess_;
}

void StepAhead::NoteDrawn(std::span<const TokenId> drawn) {
  if (!has_guess_) return;
  for (const int32_t sample : origins_) tokens_.push_back(drawn[static_cast<size_t>(sample)]);
}

// The first sequence of the guess, not before `from`, that is the same as one of `batch`; -1: none.
int StepAhead::Find(const Batch& batch, size_t sequence, size_t sample, size_t from) const {
  const auto row = static_cast<size_t>(batch.row_begin[sequence]);
  const int32_t position = batch.first_position[sequence];
  const auto blocks = static_cast<size_t>(BlocksFor(position + 1));
  const std::span<const int32_t> table = TableOf(batch, sequence).first(blocks);
  for (size_t g = from; g < tokens_.size(); ++g) {
    if (guess_.first_position[g] == position && tokens_[g] == batch.token_ids[row] &&
        guess_.sampling[g] == batch.sampling[sample] &&
        std::ranges::equal(TableOf(guess_, g).first(blocks), table)) {
      return static_cast<int>(g);
    }
  }
  return -1;
}

StepAhead::Answer StepAhead::Take(const Batch& batch) {
  const bool can_answer = has_guess_ && IsPlain(batch);
  has_guess_ = false;
  if (!can_answer) return {.samples = {}, .rest = &batch};
  answers_.assign(batch.sampling.size(), -1);
  rest_.Clear();
  rest_.max_blocks = batch.max_blocks;
  size_t sample = 0, from = 0;
  for (size_t s = 0; s < static_cast<size_t>(batch.sequences()); ++s) {
    const int32_t begin_row = batch.row_begin[s], end_row = batch.row_begin[s + 1];
    size_t end = sample;
    while (end < batch.sampled_rows.size() && batch.sampled_rows[end] < end_row) ++end;
    const bool decodes = end_row - begin_row == 1 && end - sample == 1;
    // Both are in the order of service.
    const int found = decodes ? Find(batch, s, sample, from) : -1;
    if (found >= 0) {
      answers_[sample] = found;
      from = static_cast<size_t>(found) + 1;
    } else {
      AddToRest(batch, s, sample, end);
    }
    sample = end;
  }
  if (from == 0) return {.samples = {}, .rest = &batch};
  return {.samples = answers_, .rest = rest_.rows() > 0 ? &rest_ : nullptr};
}

void StepAhead::AddToRest(const Batch& batch, size_t sequence, size_t first_sample,
                          size_t end_sample) {
  const auto rows = batch.token_ids.begin();
  const int32_t moved_by = rest_.rows() - batch.row_begin[sequence];
  const std::span<const int32_t> table = TableOf(batch, sequence);
  rest_.token_ids.insert(rest_.token_ids.end(), rows + batch.row_begin[sequence],
                         rows + batch.row_begin[sequence + 1]);
  rest_.row_begin.push_back(rest_.rows());
  rest_.first_position.push_back(batch.first_position[sequence]);
  rest_.block_table.insert(rest_.block_table.end(), table.begin(), table.end());
  for (size_t sample = first_sample; sample < end_sample; ++sample) {
    rest_.sampled_rows.push_back(batch.sampled_rows[sample] + moved_by);
    rest_.sampling.push_back(batch.sampling[sample]);
  }
}

}  // namespace vitrine
