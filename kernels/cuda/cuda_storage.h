// What the cuda backend keeps in device memory.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/device_weights.h"
#include "kernels/cuda/paged_layout.h"

namespace vitrine::cuda {

// Of the device's memory, what nobody holds.
size_t FreeDeviceBytes();

// Zeroed once everything that `stream` holds is done. RESOURCE_EXHAUSTED with the numbers.
absl::StatusOr<Buffer> AllocateDevice(size_t bytes, cudaStream_t stream);

// Consecutive parts of one format each. Gate and up are one piece.
class CudaMatrix final : public PackedMatrix {
 public:
  struct Piece {
    int first_output = 0;
    int outputs = 0;
    DeviceWeights weights;
    Buffer values, scales, minima;  // What `weights` points to.
  };

  // UNIMPLEMENTED: values that no format here holds.
  static absl::StatusOr<std::unique_ptr<PackedMatrix>> Create(const MatrixSource& source,
                                                              Numerics numerics,
                                                              cudaStream_t stream);

  // Zeros in bf16, for weights that are made on the device. `columns` is a multiple of
  // kBlockColumns, gate and up have multiples of kGatedGroup rows.
  static absl::StatusOr<std::unique_ptr<CudaMatrix>> CreateZeros(int64_t rows, int64_t columns,
                                                                 RowLayout layout,
                                                                 cudaStream_t stream);

  const std::vector<Piece>& pieces() const { return pieces_; }
  bool is_f32() const;  // All pieces multiply in f32.
  size_t bytes() const override;

 private:
  CudaMatrix(int64_t rows, int64_t columns, RowLayout layout)
      : PackedMatrix(rows, columns, layout) {}

  std::vector<Piece> pieces_;
};

// f32 rows where all readers multiply in f32, else bf16 rows.
class CudaRows final : public RowBuffer {
 public:
  static absl::StatusOr<std::unique_ptr<RowBuffer>> Create(const RowBufferSpec& spec,
                                                           cudaStream_t stream);
  const DeviceRows& rows() const { return rows_; }

 private:
  CudaRows(const RowBufferSpec& spec, const DeviceRows& rows, Buffer values)
      : RowBuffer(spec.max_rows, spec.columns), rows_(rows), values_(std::move(values)) {}

  DeviceRows rows_;
  Buffer values_;
};

class CudaKv final : public KvStorage {
 public:
  CudaKv(const KvStorageSpec& spec, Buffer values) : KvStorage(spec), values_(std::move(values)) {}

  static size_t LayerElements(const KvStorageSpec& spec);

  template <class T>
  PagedKv<T> Layer(int layer) const {
    return {values_.As<T>().data() + static_cast<size_t>(layer) * LayerElements(spec()),
            spec().num_kv_heads, spec().head_dim};
  }
  size_t bytes() const override { return values_.bytes(); }

 private:
  Buffer values_;
};

}  // namespace vitrine::cuda
