#include "model/decode_padding.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>

namespace vitrine {
namespace {

constexpr int kFewestBlocks = 4;

int BatchBucket(int sequences) {
  if (sequences >= 8) return (sequences + 7) / 8 * 8;
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(sequences)));
}

int BlockBucket(int blocks) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(blocks, kFewestBlocks))));
}

}  // namespace

DecodePadding::DecodePadding(int max_step_sequences, int max_sequence_blocks, int num_blocks)
    : max_sequences_(max_step_sequences),
      max_blocks_(BlockBucket(max_sequence_blocks)),
      first_block_(num_blocks) {
  const auto sequences = static_cast<size_t>(max_sequences_);
  padded_.token_ids.reserve(sequences);
  padded_.row_begin.reserve(sequences + 1);
  padded_.first_position.reserve(sequences);
  padded_.block_table.reserve(sequences * static_cast<size_t>(max_blocks_));
  padded_.sampled_rows.reserve(sequences);
}

const Batch* DecodePadding::Pad(const Batch& batch) {
  const int sequences = batch.sequences();
  const bool decodes = sequences > 0 && batch.rows() == sequences &&
                       batch.sampled_rows.size() == static_cast<size_t>(sequences) &&
                       batch.scored.empty() && batch.traces.empty() && batch.certified_rows.empty();
  const int bucket = decodes ? BatchBucket(sequences) : 0;
  const int width = BlockBucket(batch.max_blocks);
  if (!decodes || bucket > max_sequences_ || width > max_blocks_) return nullptr;

  const auto size = static_cast<size_t>(bucket);
  padded_.token_ids.assign(batch.token_ids.begin(), batch.token_ids.end());
  padded_.token_ids.resize(size, 0);
  padded_.first_position.assign(batch.first_position.begin(), batch.first_position.end());
  padded_.first_position.resize(size, 0);
  padded_.row_begin.resize(size + 1);
  std::iota(padded_.row_begin.begin(), padded_.row_begin.end(), 0);
  padded_.sampled_rows.resize(size);
  std::iota(padded_.sampled_rows.begin(), padded_.sampled_rows.end(), 0);
  padded_.max_blocks = width;
  padded_.block_table.assign(size * static_cast<size_t>(width), first_block_);
  const auto from = static_cast<size_t>(batch.max_blocks), to = static_cast<size_t>(width);
  for (size_t s = 0; s < static_cast<size_t>(sequences); ++s) {
    std::copy_n(batch.block_table.begin() + static_cast<ptrdiff_t>(s * from), from,
                padded_.block_table.begin() + static_cast<ptrdiff_t>(s * to));
  }
  for (int s = sequences; s < bucket; ++s) {
    padded_.block_table[static_cast<size_t>(s) * to] = first_block_ + s - sequences;
  }
  return &padded_;
}

uint64_t DecodePadding::Shape(const Batch& padded) {
  return static_cast<uint64_t>(padded.rows()) << 32 | static_cast<uint64_t>(padded.max_blocks);
}

}  // namespace vitrine
