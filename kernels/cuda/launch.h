// Kernel launch for both worlds, with launch attributes.
#pragma once
#include <cstddef>
#include <memory>
#include <tuple>
#include <utility>

#include "kernels/cuda/portable.h"
#if GPU_EMULATED
#include "cuda_emulator/launch.h"
#endif

namespace vitrine::gpu {

struct LaunchConfig {
  dim3 grid, block;
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
  // Programmatic dependent launch (sm_90): the kernel may start while its predecessor drains, and
  // every thread must call WaitForPrevious() before it reads what the predecessor wrote.
  bool overlap_previous = false;
};

#if GPU_EMULATED

template <class... P, class... A>
[[nodiscard]] cudaError_t Launch(void (*kernel)(P...), const LaunchConfig& config, A&&... a) {
  // Arguments are copied at the launch, as on a device.
  auto args = std::make_shared<std::tuple<std::decay_t<P>...>>(std::forward<A>(a)...);
  int index = 0;
  std::apply([&](auto&... v) { ((emu::CheckArgument(v, index), ++index), ...); }, *args);
  return emu::Submit({reinterpret_cast<const void*>(kernel), config.grid, config.block,
                      config.shared_bytes, config.stream, config.overlap_previous},
                     [kernel, args] { std::apply(kernel, *args); });
}

// Allows a kernel more than 48 KiB of dynamic shared memory.
template <class... P>
[[nodiscard]] cudaError_t AllowDynamicShared(void (*kernel)(P...), size_t bytes) {
  constexpr size_t kMost = 163 * 1024;  // sm_80, the smallest device the kernels must fit
  if (bytes > kMost) return emu::SetError(cudaErrorInvalidValue);
  emu::SetDynamicLimit(reinterpret_cast<const void*>(kernel), bytes);
  return cudaSuccess;
}

inline void WaitForPrevious() { emu::NoteDependencyWait(); }

#else

template <class... P, class... A>
[[nodiscard]] cudaError_t Launch(void (*kernel)(P...), const LaunchConfig& config, A&&... a) {
  cudaLaunchConfig_t cfg{};
  cfg.gridDim = config.grid;
  cfg.blockDim = config.block;
  cfg.dynamicSmemBytes = config.shared_bytes;
  cfg.stream = config.stream;
  cudaLaunchAttribute attribute{};
  if (config.overlap_previous) {
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cfg.attrs = &attribute;
    cfg.numAttrs = 1;
  }
  return cudaLaunchKernelEx(&cfg, kernel, std::forward<A>(a)...);
}

template <class... P>
[[nodiscard]] cudaError_t AllowDynamicShared(void (*kernel)(P...), size_t bytes) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                              cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}

__device__ inline void WaitForPrevious() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#endif

}  // namespace vitrine::gpu
