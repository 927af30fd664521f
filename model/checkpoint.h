// Named tensors of a model file, whatever its format. Both readers check every offset, size and
// count before use, so a TensorView is always safe to read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/dtype.h"

namespace vitrine {

// A tensor inside a mapped file, row-major, at any address: files need not align it. Valid as long
// as its Checkpoint.
struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  // Name of a type that no weight has ("BOOL"), as files of masks and counters have it; empty for
  // all others. Such a tensor may lie in a file, but not be used.
  std::string_view other_type = {};
  std::vector<int64_t> shape;  // Outermost first: a matrix is {rows, columns}.
  const std::byte* data = nullptr;
  size_t bytes = 0;

  std::string_view type_name() const {
    return other_type.empty() ? TraitsOf(dtype).name : other_type;
  }
  int64_t rows() const { return shape.size() > 1 ? shape.front() : 1; }
  int64_t columns() const { return shape.empty() ? 1 : shape.back(); }
  int64_t elements() const {
    int64_t product = 1;
    for (const int64_t extent : shape) product *= extent;
    return product;
  }
};

class Checkpoint {
 public:
  virtual ~Checkpoint() = default;

  // Names the file in errors: its last path component.
  virtual const std::string& label() const = 0;
  // Null when there is no such tensor.
  virtual const TensorView* Find(std::string_view name) const = 0;
  virtual std::span<const TensorView> tensors() const = 0;
};

}  // namespace vitrine
