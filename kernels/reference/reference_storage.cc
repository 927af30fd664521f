#include "kernels/reference/reference_storage.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/block_formats.h"

namespace vitrine::reference {
namespace {

constexpr size_t kAlignment = 64;

void FreeHost(void* /*context*/, void* data, size_t /*bytes*/) { std::free(data); }

}  // namespace

absl::StatusOr<Buffer> AllocateHost(size_t bytes) {
  const size_t rounded = (std::max(bytes, size_t{1}) + kAlignment - 1) / kAlignment * kAlignment;
  void* data = rounded < bytes ? nullptr : std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", bytes, " bytes"));
  }
  std::memset(data, 0, rounded);
  return Buffer(data, bytes, &FreeHost, nullptr);
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> Matrix::Create(const MatrixSource& source) {
  int64_t rows = 0;
  for (const MatrixPart& part : source.parts) rows += part.rows;
  const int64_t columns = source.parts[0].columns;
  std::unique_ptr<Matrix> matrix(new Matrix(rows, columns, source.layout));
  for (const MatrixPart& part : source.parts) {
    const size_t size = static_cast<size_t>(part.rows) * RowBytes(part.dtype, columns);
    absl::StatusOr<Buffer> data = AllocateHost(size);
    if (!data.ok()) return data.status();
    std::memcpy(data->As<std::byte>().data(), part.data, size);
    matrix->parts_.push_back({part.dtype, part.rows, *std::move(data)});
  }
  absl::StatusOr<Buffer> decoded = AllocateHost(static_cast<size_t>(columns) * sizeof(float));
  if (!decoded.ok()) return decoded.status();
  matrix->decoded_ = *std::move(decoded);
  return matrix;
}

const float* Matrix::Row(int64_t n) const {
  size_t index = 0;
  while (n >= parts_[index].rows) n -= parts_[index++].rows;
  const Part& part = parts_[index];
  const size_t offset = static_cast<size_t>(n) * RowBytes(part.dtype, columns());
  float* row = decoded_.As<float>().data();
  DequantizeRow(part.dtype, part.data.As<std::byte>().data() + offset, columns(), row);
  return row;
}

size_t Matrix::bytes() const {
  size_t sum = decoded_.bytes();
  for (const Part& part : parts_) sum += part.data.bytes();
  return sum;
}

size_t KvCache::Bytes(const KvStorageSpec& spec) {
  return size_t{2} * static_cast<size_t>(spec.num_layers) * static_cast<size_t>(spec.num_kv_heads) *
         static_cast<size_t>(spec.num_blocks) * kKvBlockTokens *
         static_cast<size_t>(spec.head_dim) * sizeof(float);
}

float* KvCache::At(int layer, KvPart part, int kv_head, int block, int slot) const {
  VITRINE_CHECK(block >= 0 && block < spec().num_blocks);
  int64_t index = layer * 2 + (part == KvPart::kValue ? 1 : 0);
  index = index * spec().num_kv_heads + kv_head;
  index = index * spec().num_blocks + block;
  index = index * kKvBlockTokens + slot;
  return values_.As<float>().data() + index * spec().head_dim;
}

float KvCache::Rounded(float value) const {
  return spec().dtype == DType::kF32 ? value : FloatFromBf16(Bf16FromFloat(value));
}

}  // namespace vitrine::reference
