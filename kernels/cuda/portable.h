// The header every kernel source includes. Under nvcc it maps onto CUDA; under a host compiler
// it maps onto the fibre emulator. Kernel code never names __shared__, <<<>>> or inline PTX
// directly: those are the only three things a host compiler lacks.
#pragma once
#if defined(__CUDACC__)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <type_traits>

#define GPU_EMULATED 0
#define GPU_SHARED(name, ...) __shared__ std::type_identity_t<__VA_ARGS__> name
#define GPU_DYNAMIC_SHARED(name) extern __shared__ __align__(128) unsigned char name[]
#define GPU_UNROLL _Pragma("unroll")

#else

#include <type_traits>

#include "cuda_emulator/device.h"
#include "cuda_emulator/shared_memory.h"

#define GPU_EMULATED 1
#define GPU_SHARED(name, ...)      \
  static char name##_emulated_key; \
  auto& name = ::vitrine::emu::StaticShared<std::type_identity_t<__VA_ARGS__>>(&name##_emulated_key)
#define GPU_DYNAMIC_SHARED(name) unsigned char* const name = ::vitrine::emu::DynamicShared()
#define GPU_UNROLL

#endif
