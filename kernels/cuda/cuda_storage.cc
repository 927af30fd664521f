#include "kernels/cuda/cuda_storage.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/weight_packing.h"

namespace vitrine::cuda {
namespace {

void FreeDevice(void* /*context*/, void* data, size_t /*bytes*/) { CheckCuda(cudaFree(data)); }

template <class T>
absl::StatusOr<Buffer> Upload(const std::vector<T>& values, cudaStream_t stream) {
  const size_t bytes = values.size() * sizeof(T);
  absl::StatusOr<Buffer> buffer = AllocateDevice(bytes, stream);
  if (!buffer.ok() || bytes == 0) return buffer;
  CheckCuda(cudaMemcpyAsync(buffer->As<std::byte>().data(), values.data(), bytes,
                            cudaMemcpyHostToDevice, stream));
  CheckCuda(cudaStreamSynchronize(stream));
  return buffer;
}

std::vector<SourceRow> RowsOf(const MatrixPart& part) {
  std::vector<SourceRow> rows(static_cast<size_t>(part.rows));
  const size_t row_bytes = RowBytes(part.dtype, part.columns);
  for (size_t r = 0; r < rows.size(); ++r) rows[r] = {part.data + r * row_bytes, part.dtype};
  return rows;
}

// The rows of one piece and the parts they come from.
struct PieceSource {
  std::vector<SourceRow> rows;
  std::vector<DType> dtypes;
  std::string names;
  WeightFormat format = WeightFormat::kF32Columns;
  int outputs = 0;

  void Append(const MatrixPart& part) {
    const std::vector<SourceRow> more = RowsOf(part);
    rows.insert(rows.end(), more.begin(), more.end());
    dtypes.push_back(part.dtype);
    absl::StrAppend(&names, names.empty() ? "" : ", ", part.name);
    outputs += static_cast<int>(part.rows);
  }
};

std::vector<PieceSource> PiecesOf(const MatrixSource& source, Numerics numerics) {
  std::vector<PieceSource> pieces;
  for (const MatrixPart& part : source.parts) {
    const bool joins =
        !pieces.empty() && (numerics == Numerics::kExact || source.layout == RowLayout::kGateUp ||
                            pieces.back().dtypes.back() == part.dtype);
    if (!joins) pieces.emplace_back();
    pieces.back().Append(part);
  }
  for (PieceSource& piece : pieces) {
    if (source.layout == RowLayout::kGateUp) piece.outputs /= 2;
    if (numerics == Numerics::kExact) continue;
    piece.format = FormatFor(piece.dtypes);
    if (source.layout == RowLayout::kGateUp && piece.format != WeightFormat::kF32Columns) {
      const std::span<const SourceRow> rows(piece.rows);
      const auto half = static_cast<size_t>(piece.outputs);
      piece.rows = InterleaveGateUp(rows.first(half), rows.subspan(half));
    }
  }
  return pieces;
}

absl::StatusOr<CudaMatrix::Piece> CreatePiece(const PieceSource& source, int64_t columns,
                                              cudaStream_t stream) {
  const bool is_f16 = std::ranges::all_of(source.dtypes, [](DType t) { return t == DType::kF16; });
  if (source.format == WeightFormat::kF16 && !is_f16 && !FitsF16(source.rows, columns)) {
    const std::string_view dtype = TraitsOf(source.dtypes[0]).name;
    return absl::UnimplementedError(absl::StrCat("the cuda backend stores ", std::string(dtype),
                                                 " weights as F16, but ", source.names,
                                                 " has values beyond 65504"));
  }
  const HostWeights host = PackRows(source.format, source.rows, columns);
  absl::StatusOr<Buffer> values = Upload(host.values, stream);
  if (!values.ok()) return values.status();
  absl::StatusOr<Buffer> scales = Upload(host.scales, stream);
  if (!scales.ok()) return scales.status();
  absl::StatusOr<Buffer> minima = Upload(host.minima, stream);
  if (!minima.ok()) return minima.status();
  const DeviceWeights weights{.format = host.format,
                              .values = values->As<std::byte>().data(),
                              .scales = scales->As<__half>().data(),
                              .minima = minima->As<__half>().data(),
                              .rows = host.rows,
                              .columns = host.columns};
  return CudaMatrix::Piece{.first_output = 0,
                           .outputs = source.outputs,
                           .weights = weights,
                           .values = *std::move(values),
                           .scales = *std::move(scales),
                           .minima = *std::move(minima)};
}

}  // namespace

size_t FreeDeviceBytes() {
  size_t free = 0, total = 0;
  CheckCuda(cudaMemGetInfo(&free, &total));
  return free;
}

absl::StatusOr<Buffer> AllocateDevice(size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return Buffer();
  void* data = nullptr;
  if (cudaMalloc(&data, bytes) != cudaSuccess) {
    cudaGetLastError();  // Or it would be reported by the next launch.
    size_t free = 0, total = 0;
    CheckCuda(cudaMemGetInfo(&free, &total));
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", bytes,
                                                     " bytes of device memory: ", free, " of ",
                                                     total, " bytes are free"));
  }
  CheckCuda(cudaMemsetAsync(data, 0, bytes, stream));
  return Buffer(data, bytes, &FreeDevice, nullptr);
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> CudaMatrix::Create(const MatrixSource& source,
                                                                 Numerics numerics,
                                                                 cudaStream_t stream) {
  int64_t rows = 0;
  for (const MatrixPart& part : source.parts) rows += part.rows;
  const int64_t columns = source.parts[0].columns;
  std::unique_ptr<CudaMatrix> matrix(new CudaMatrix(rows, columns, source.layout));
  int first_output = 0;
  for (const PieceSource& piece_source : PiecesOf(source, numerics)) {
    absl::StatusOr<Piece> piece = CreatePiece(piece_source, columns, stream);
    if (!piece.ok()) return piece.status();
    piece->first_output = first_output;
    first_output += piece->outputs;
    matrix->pieces_.push_back(*std::move(piece));
  }
  return matrix;
}

absl::StatusOr<std::unique_ptr<CudaMatrix>> CudaMatrix::CreateZeros(int64_t rows, int64_t columns,
                                                                    RowLayout layout,
                                                                    cudaStream_t stream) {
  VITRINE_CHECK_EQ(columns % kBlockColumns, 0);
  const bool is_gated = layout == RowLayout::kGateUp;
  if (is_gated) VITRINE_CHECK_EQ(rows % (2 * kGatedGroup), 0);
  absl::StatusOr<Buffer> values =
      AllocateDevice(static_cast<size_t>(rows) * RowBytes(DType::kBF16, columns), stream);
  if (!values.ok()) return values.status();
  const DeviceWeights weights{.format = WeightFormat::kBF16,
                              .values = values->As<std::byte>().data(),
                              .rows = static_cast<int>(rows),
                              .columns = static_cast<int>(columns)};
  std::unique_ptr<CudaMatrix> matrix(new CudaMatrix(rows, columns, layout));
  matrix->pieces_.push_back({.outputs = static_cast<int>(is_gated ? rows / 2 : rows),
                             .weights = weights,
                             .values = *std::move(values),
                             .scales = {},
                             .minima = {}});
  return matrix;
}

size_t CudaMatrix::bytes() const {
  size_t sum = 0;
  for (const Piece& piece : pieces_) {
    sum += piece.values.bytes() + piece.scales.bytes() + piece.minima.bytes();
  }
  return sum;
}

bool CudaMatrix::is_f32() const {
  return std::ranges::all_of(pieces_, [](const Piece& piece) {
    return piece.weights.format == WeightFormat::kF32Columns;
  });
}

absl::StatusOr<std::unique_ptr<RowBuffer>> CudaRows::Create(const RowBufferSpec& spec,
                                                            cudaStream_t stream) {
  const bool is_f32 = std::ranges::all_of(spec.consumers, [](const PackedMatrix* consumer) {
    return static_cast<const CudaMatrix&>(*consumer).is_f32();
  });
  const int stride = (spec.columns + kBlockColumns - 1) / kBlockColumns * kBlockColumns;
  const size_t element = is_f32 ? sizeof(float) : sizeof(__nv_bfloat16);
  absl::StatusOr<Buffer> values = AllocateDevice(
      static_cast<size_t>(spec.max_rows) * static_cast<size_t>(stride) * element, stream);
  if (!values.ok()) return values.status();
  const DeviceRows rows{.data = values->As<std::byte>().data(), .stride = stride, .is_f32 = is_f32};
  return std::unique_ptr<RowBuffer>(new CudaRows(spec, rows, *std::move(values)));
}

size_t CudaKv::LayerElements(const KvStorageSpec& spec) {
  return size_t{2} * static_cast<size_t>(spec.num_blocks) * static_cast<size_t>(spec.num_kv_heads) *
         kKvBlockTokens * static_cast<size_t>(spec.head_dim);
}

}  // namespace vitrine::cuda
