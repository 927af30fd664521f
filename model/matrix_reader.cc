#include "model/matrix_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/block_formats.h"
#include "model/fp8.h"
#include "model/quote.h"

namespace vitrine {
namespace {

// Elements of a transposed tensor are taken one by one: they are plain floats.
void CopyTransposedRow(const WeightView& view, int64_t row, std::byte* target) {
  const size_t element = RowBytes(view.dtype, 1);
  const int64_t tensor_row = view.tensor_row(row);
  for (int64_t column = 0; column < view.columns; ++column) {
    const auto index = static_cast<size_t>(column * view.tensor_rows + tensor_row);
    std::memcpy(target + static_cast<size_t>(column) * element, view.data + index * element,
                element);
  }
}

// The rows of a view one after the other.
std::vector<std::byte> Gather(const WeightView& view) {
  const size_t row_bytes = RowBytes(view.dtype, view.columns);
  std::vector<std::byte> rows(static_cast<size_t>(view.rows) * row_bytes);
  for (int64_t row = 0; row < view.rows; ++row) {
    std::byte* target = rows.data() + static_cast<size_t>(row) * row_bytes;
    if (view.scales.data != nullptr) {
      DecodeFp8Row(view, row, reinterpret_cast<float*>(target));
    } else if (view.is_transposed) {
      CopyTransposedRow(view, row, target);
    } else {
      std::memcpy(target, view.row(row), row_bytes);
    }
  }
  return rows;
}

absl::Status Error(const MatrixPart& part, DType dtype, std::string_view rule) {
  return absl::InvalidArgumentError(absl::StrCat("tensor ", Quote(part.name), " cannot become ",
                                                 std::string(TraitsOf(dtype).name), ": ",
                                                 std::string(rule)));
}

// The part's rows, scaled, in another type.
absl::StatusOr<std::vector<std::byte>> Requantize(const MatrixPart& part, float scale,
                                                  DType dtype) {
  const int block = TraitsOf(dtype).block_columns;
  if (part.columns % block != 0) {
    return Error(part, dtype,
                 absl::StrCat("rows of ", part.columns, " are not whole blocks of ", block));
  }
  const size_t source_bytes = RowBytes(part.dtype, part.columns);
  const size_t target_bytes = RowBytes(dtype, part.columns);
  std::vector<std::byte> rows(static_cast<size_t>(part.rows) * target_bytes);
  std::vector<float> values(static_cast<size_t>(part.columns));
  for (size_t row = 0; row < static_cast<size_t>(part.rows); ++row) {
    DequantizeRow(part.dtype, part.data + row * source_bytes, part.columns, values.data());
    if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) {
      return Error(part, dtype, "it holds values that are not finite");
    }
    for (float& value : values) value *= scale;
    QuantizeRow(dtype, values.data(), part.columns, rows.data() + row * target_bytes);
  }
  return rows;
}

}  // namespace

absl::StatusOr<MatrixPart> MatrixReader::Read(const WeightView& view) {
  MatrixPart part = {
      .name = view.name, .dtype = view.dtype, .rows = view.rows, .columns = view.columns};
  if (view.is_contiguous()) {
    part.data = view.row(0);
  } else {
    part.data = storage_.emplace_back(Gather(view)).data();
  }
  // Scaled values are not those of the file's type any more.
  const DType dtype = dtype_.value_or(view.scale == 1.0f ? part.dtype : DType::kF32);
  if (view.scale == 1.0f && dtype == part.dtype) return part;
  absl::StatusOr<std::vector<std::byte>> rows = Requantize(part, view.scale, dtype);
  if (!rows.ok()) return rows.status();
  part.dtype = dtype;
  part.data = storage_.emplace_back(*std::move(rows)).data();
  return part;
}

void AppendValues(const WeightView& view, std::vector<float>& values) {
  const size_t begin = values.size();
  const auto columns = static_cast<size_t>(view.columns);
  values.resize(begin + static_cast<size_t>(view.rows) * columns);
  for (int64_t row = 0; row < view.rows; ++row) {
    DequantizeRow(view.dtype, view.row(row), view.columns,
                  values.data() + begin + static_cast<size_t>(row) * columns);
  }
  for (size_t i = begin; i < values.size(); ++i) values[i] *= view.scale;
}

}  // namespace vitrine
