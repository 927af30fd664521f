// Turns what a file stores into what a backend packs: gathers rows that lie apart, transposes, and
// quantises.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/buffer.h"
#include "model/tensor_map.h"

namespace vitrine {

// Makes the parts of one matrix at a time. A part that needs no work points into the file; the
// others live as long as the reader.
class MatrixReader {
 public:
  // `dtype`: what matrices become; none: what the file holds.
  explicit MatrixReader(std::optional<DType> dtype) : dtype_(dtype) {}

  // INVALID_ARGUMENT names the tensor whose rows `dtype` cannot divide into blocks or whose values
  // are not finite.
  absl::StatusOr<MatrixPart> Read(const WeightView& view);

 private:
  std::optional<DType> dtype_;
  std::deque<std::vector<std::byte>> storage_;  // A deque: parts point into it.
};

// The elements of a vector, or of all rows of a matrix of plain floats, appended to `values`.
void AppendValues(const WeightView& view, std::vector<float>& values);

}  // namespace vitrine
