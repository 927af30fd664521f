// Owners of backend memory. All are created at start-up and freed before their backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/device_span.h"
#include "kernels/dtype.h"

namespace vitrine {

// A block of backend memory, zeroed, aligned to 64 bytes. Move-only.
class Buffer {
 public:
  using Deleter = void (*)(void* context, void* data, size_t bytes);

  Buffer() = default;
  Buffer(void* data, size_t bytes, Deleter deleter, void* context)
      : data_(data), bytes_(bytes), deleter_(deleter), context_(context) {}
  Buffer(Buffer&& other) noexcept { *this = static_cast<Buffer&&>(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  size_t bytes() const { return bytes_; }

  // The whole buffer as elements of T.
  template <class T>
  DeviceSpan<T> As() const {
    return {static_cast<T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
  Deleter deleter_ = nullptr;
  void* context_ = nullptr;
};

// Rows of one tensor of a file, row-major and contiguous, in host memory. Only read while packing.
struct MatrixPart {
  std::string name;  // For error messages.
  DType dtype = DType::kF32;
  const std::byte* data = nullptr;
  int64_t rows = 0;     // Outputs.
  int64_t columns = 0;  // Inputs; a multiple of the block of `dtype`.
};

// How the rows of several tensors become one matrix.
enum class RowLayout {
  kStacked,  // One part after the other.
  kGateUp,   // Exactly two parts of equal shape, gate and up, for ActivatedMatMul.
  kHeads,    // Parts q, k, v; each has whole heads of `head_dim` rows, for MatMulRopeWriteKv.
};

// Parts share `columns`; their dtypes may differ.
struct MatrixSource {
  std::vector<MatrixPart> parts = {};
  RowLayout layout = RowLayout::kStacked;
  int head_dim = 0;  // kHeads only.
};

// A weight matrix in the backend's own order. Immutable.
class PackedMatrix {
 public:
  PackedMatrix(int64_t rows, int64_t columns, RowLayout layout)
      : rows_(rows), columns_(columns), layout_(layout) {}
  virtual ~PackedMatrix() = default;
  PackedMatrix(const PackedMatrix&) = delete;
  PackedMatrix& operator=(const PackedMatrix&) = delete;

  int64_t rows() const { return rows_; }  // Of all parts together; gate and up both count.
  int64_t columns() const { return columns_; }
  RowLayout layout() const { return layout_; }
  virtual size_t bytes() const = 0;

 private:
  int64_t rows_;
  int64_t columns_;
  RowLayout layout_;
};

struct RowBufferSpec {
  int max_rows = 0;
  int columns = 0;
  // The matrices that will read the rows: they decide the format. At least one.
  std::vector<const PackedMatrix*> consumers = {};
};

// Activations between a producer (norm, gated activation, attention) and the next matmul, in the
// backend's own format: int8 rows with scales on the CPU, f32 rows with exact numerics.
class RowBuffer {
 public:
  RowBuffer(int max_rows, int columns) : max_rows_(max_rows), columns_(columns) {}
  virtual ~RowBuffer() = default;
  RowBuffer(const RowBuffer&) = delete;
  RowBuffer& operator=(const RowBuffer&) = delete;

  int max_rows() const { return max_rows_; }
  int columns() const { return columns_; }

 private:
  int max_rows_;
  int columns_;
};

inline constexpr int kKvBlockTokens = 16;

struct KvStorageSpec {
  int num_layers = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int num_blocks = 0;          // Of kKvBlockTokens tokens each, over all layers and heads.
  DType dtype = DType::kBF16;  // kF32 or kBF16; kQ8_0 (keys only) where the backend offers it.
};

// Keys and values of all layers in blocks of kKvBlockTokens tokens. Who owns which block is the
// business of model/kv_cache.h.
class KvStorage {
 public:
  explicit KvStorage(const KvStorageSpec& spec) : spec_(spec) {}
  virtual ~KvStorage() = default;
  KvStorage(const KvStorage&) = delete;
  KvStorage& operator=(const KvStorage&) = delete;

  const KvStorageSpec& spec() const { return spec_; }
  virtual size_t bytes() const = 0;

 private:
  KvStorageSpec spec_;
};

}  // namespace vitrine
