// Conversions between f32 and the element types that kernels are written for.
#pragma once

#include "kernels/cuda/portable.h"

namespace vitrine::cuda {

__device__ inline float ToFloat(float value) { return value; }
__device__ inline float ToFloat(__nv_bfloat16 value) { return __bfloat162float(value); }

template <class T>
__device__ T FromFloat(float value);
template <>
__device__ inline float FromFloat<float>(float value) {
  return value;
}
template <>
__device__ inline __nv_bfloat16 FromFloat<__nv_bfloat16>(float value) {
  return __float2bfloat16(value);
}

}  // namespace vitrine::cuda
