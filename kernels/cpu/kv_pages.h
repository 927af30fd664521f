// The paged key/value cache. A page is one block of 16 tokens of one head of one layer:
//
//   bf16  keys    [head_dim / 2][16 tokens][2]   a register holds two dimensions of 16 keys
//         values  [8 token pairs][head_dim][2]   a register holds two tokens of 16 dimensions
//   f32   keys    [head_dim][16 tokens]
//         values  [16 tokens][head_dim]
//   q8_0  keys    [head_dim / 4][16 tokens][4]   int8 + 128; a register holds four dimensions
//                 [head_dim / 16][16 tokens]     f32, one scale per key and 16 dimensions
//         values  as in bf16
//
// with head_dim rounded up to 16. With keys across the lanes, 16 scores come out of the dot product
// without adding across lanes. Keys and values of a page are adjacent, and pages of one head are
// neighbours: a sequence whose blocks were allocated together is one stream per head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/buffer.h"
#include "kernels/cpu/simd.h"
#include "kernels/paged_batch.h"

namespace vitrine::cpu {

inline constexpr int kKeyGroup = 16;  // Dimensions of an int8 key that share a scale.

class CpuKvStorage final : public KvStorage {
 public:
  CpuKvStorage(const KvStorageSpec& spec, Buffer memory)
      : KvStorage(spec),
        memory_(std::move(memory)),
        data_(memory_.As<uint8_t>().data()),
        padded_dim_(PaddedDim(spec.head_dim)),
        key_bytes_(KeyBytes(spec)),
        page_bytes_(PageBytes(spec)) {}

  static constexpr int PaddedDim(int head_dim) { return (head_dim + 15) / 16 * 16; }
  static constexpr size_t PageBytes(const KvStorageSpec& spec) {
    return KeyBytes(spec) + (spec.dtype == DType::kF32 ? 4 : 2) * Elements(spec);
  }

  VITRINE_INLINE uint8_t* Keys(int layer, int kv_head, int block) const {
    const int64_t head = int64_t{layer} * spec().num_kv_heads + kv_head;
    const auto page = static_cast<size_t>(head * spec().num_blocks + block);
    return data_ + page * page_bytes_;
  }
  VITRINE_INLINE uint8_t* Values(int layer, int kv_head, int block) const {
    return Keys(layer, kv_head, block) + key_bytes_;
  }
  int padded_dim() const { return padded_dim_; }
  size_t bytes() const override { return memory_.bytes(); }

 private:
  // Of the keys of a page, and as many of its values.
  static constexpr size_t Elements(const KvStorageSpec& spec) {
    return size_t{kKvBlockTokens} * static_cast<size_t>(PaddedDim(spec.head_dim));
  }
  static constexpr size_t KeyBytes(const KvStorageSpec& spec) {
    if (spec.dtype == DType::kF32) return 4 * Elements(spec);
    if (spec.dtype == DType::kBF16) return 2 * Elements(spec);
    return Elements(spec) + sizeof(float) * Elements(spec) / kKeyGroup;
  }

  Buffer memory_;
  uint8_t* data_;
  int padded_dim_;
  size_t key_bytes_;
  size_t page_bytes_;
};

// [padded_dim / kKeyGroup][16 tokens], behind the int8 keys of a page.
template <class Byte>
VITRINE_INLINE auto* KeyScales(Byte* keys, int padded_dim) {
  using Scale = std::conditional_t<std::is_const_v<Byte>, const float, float>;
  return reinterpret_cast<Scale*>(keys + kKvBlockTokens * padded_dim);
}

// Where the key and the value of a row go.
struct RowPlace {
  int32_t block = 0;
  int32_t slot = 0;
  int32_t position = 0;
};

// The sequence that a row of the batch belongs to.
inline int SequenceOf(const PagedBatch& batch, int row) {
  int low = 0;
  int high = batch.sequences();
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (batch.row_begin[static_cast<size_t>(middle)] <= row ? low : high) = middle;
  }
  return low;
}

inline int PositionOf(const PagedBatch& batch, int row) {
  const auto sequence = static_cast<size_t>(SequenceOf(batch, row));
  return batch.first_position[sequence] + row - batch.row_begin[sequence];
}

// Calls visit(row, place) for every row of a batch. Blocks are checked against `num_blocks`.
template <class Visit>
void ForEachPlace(const PagedBatch& batch, int num_blocks, Visit&& visit) {
  for (int s = 0; s < batch.sequences(); ++s) {
    const auto index = static_cast<size_t>(s);
    int32_t position = batch.first_position[index];
    for (int row = batch.row_begin[index]; row < batch.row_begin[index + 1]; ++row, ++position) {
      const int entry = position / kKvBlockTokens;
      VITRINE_CHECK(entry >= 0 && entry < batch.max_blocks);
      const int32_t block = batch.block_table[index * static_cast<size_t>(batch.max_blocks) +
                                              static_cast<size_t>(entry)];
      VITRINE_CHECK(block >= 0 && block < num_blocks);
      visit(row, RowPlace{block, position % kKvBlockTokens, position});
    }
  }
}

}  // namespace vitrine::cpu
