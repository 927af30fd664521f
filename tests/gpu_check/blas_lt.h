// cuBLASLt where it is installed: a yardstick for the backend's own products, which do not use it.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace vitrine::gpu_check {

// One shape of product, with the algorithm that the library has chosen for it.
class BlasLtProduct {
 public:
  virtual ~BlasLtProduct() = default;
  // output [rows, outputs] in f32 = input [rows, columns] times the transpose of weights
  // [outputs, columns], both bf16; all in device memory, row by row. Enqueued.
  virtual absl::Status Run(const void* input, const void* weights, float* output,
                           cudaStream_t stream) = 0;
};

class BlasLt {
 public:
  // Opens the library. UNAVAILABLE, with the reason, where it is missing, cannot be used, or was
  // unknown when this program was built.
  static absl::StatusOr<std::unique_ptr<BlasLt>> Open();
  virtual ~BlasLt() = default;

  // `input_stride`: elements from one input row to the next. The result must not outlive this.
  virtual absl::StatusOr<std::unique_ptr<BlasLtProduct>> Prepare(int rows, int outputs, int columns,
                                                                 int input_stride) = 0;
};

}  // namespace vitrine::gpu_check
