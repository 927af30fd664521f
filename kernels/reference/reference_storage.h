// What the reference backend keeps: everything in host memory and in f32 or as the file has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/buffer.h"
#include "kernels/dtype.h"
#include "kernels/paged_batch.h"

namespace vitrine::reference {

// Zeroed, aligned to 64 bytes. RESOURCE_EXHAUSTED where memory is short.
absl::StatusOr<Buffer> AllocateHost(size_t bytes);

// The bytes of the file, decoded row by row when an op needs them.
class Matrix final : public PackedMatrix {
 public:
  static absl::StatusOr<std::unique_ptr<PackedMatrix>> Create(const MatrixSource& source);

  // Row `n` over all parts, in f32; valid until the next call.
  const float* Row(int64_t n) const;
  size_t bytes() const override;

 private:
  struct Part {
    DType dtype;
    int64_t rows;
    Buffer data;
  };

  Matrix(int64_t rows, int64_t columns, RowLayout layout) : PackedMatrix(rows, columns, layout) {}

  std::vector<Part> parts_;
  Buffer decoded_;
};

// f32 rows.
class Rows final : public RowBuffer {
 public:
  Rows(int max_rows, int columns, Buffer values)
      : RowBuffer(max_rows, columns), values_(std::move(values)) {}

  float* Row(int r) const { return values_.As<float>().data() + int64_t{r} * columns(); }

 private:
  Buffer values_;
};

enum class KvPart { kKey, kValue };

// One f32 per element, rounded to bf16 on the way in where the spec says so.
class KvCache final : public KvStorage {
 public:
  KvCache(const KvStorageSpec& spec, Buffer values) : KvStorage(spec), values_(std::move(values)) {}

  static size_t Bytes(const KvStorageSpec& spec);

  // The head_dim values of one token.
  float* At(int layer, KvPart part, int kv_head, int block, int slot) const;
  float Rounded(float value) const;
  size_t bytes() const override { return values_.bytes(); }

 private:
  Buffer values_;
};

inline const Matrix& AsMatrix(const PackedMatrix* matrix) {
  return static_cast<const Matrix&>(*matrix);
}
inline const Rows& AsRows(const RowBuffer* rows) { return static_cast<const Rows&>(*rows); }
inline const KvCache& AsKvCache(const KvStorage* kv) { return static_cast<const KvCache&>(*kv); }

// Block and slot of a position of a sequence.
struct KvPlace {
  int block;
  int slot;
};
inline KvPlace PlaceOf(const PagedBatch& batch, int sequence, int position) {
  const auto index = static_cast<size_t>(sequence) * static_cast<size_t>(batch.max_blocks) +
                     static_cast<size_t>(position / kKvBlockTokens);
  return {batch.block_table[index], position % kKvBlockTokens};
}

// Calls visit(sequence, row, position) for every row of the batch.
template <class Visit>
void ForEachRow(const PagedBatch& batch, Visit visit) {
  for (size_t s = 0; s < batch.first_position.size(); ++s) {
    for (int row = batch.row_begin[s]; row < batch.row_begin[s + 1]; ++row) {
      visit(static_cast<int>(s), row, batch.first_position[s] + row - batch.row_begin[s]);
    }
  }
}

// Intermediate results of ops, sized when the buffers that need them are created.
struct Scratch {
  std::vector<float> qkv;      // [rows, heads * head_dim] of MatMulRopeWriteKv
  std::vector<double> scores;  // [positions]
};

}  // namespace vitrine::reference
