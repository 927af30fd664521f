// A RowBuffer as kernels see it: bf16 rows for matrix instructions, or f32 rows.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstddef>

namespace vitrine::cuda {

struct DeviceRows {
  void* data = nullptr;
  int stride = 0;  // Elements from row to row, a multiple of 32; the padding is zero.
  bool is_f32 = false;

  __device__ float Load(int row, int column) const {
    const size_t at = static_cast<size_t>(row) * stride + column;
    return is_f32 ? static_cast<const float*>(data)[at]
                  : __bfloat162float(static_cast<const __nv_bfloat16*>(data)[at]);
  }
  __device__ void Store(int row, int column, float value) const {
    const size_t at = static_cast<size_t>(row) * stride + column;
    if (is_f32) {
      static_cast<float*>(data)[at] = value;
    } else {
      static_cast<__nv_bfloat16*>(data)[at] = __float2bfloat16(value);
    }
  }
};

}  // namespace vitrine::cuda
