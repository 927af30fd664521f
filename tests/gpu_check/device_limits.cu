#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.h"
#include "tests/cuda_emulator/device_array.h"
#include "tests/gpu_check/device_limits.h"

namespace vitrine::gpu_check {
namespace {

constexpr int kThreads = 256, kRounds = 7, kBlocksPerProcessor = 8;
constexpr int kChains = 8;  // Independent accumulators of a warp.

__global__ void __launch_bounds__(kThreads)
    ReadSumKernel(const uint4* in, size_t count, uint32_t* out) {
  uint32_t sum = 0;
  const size_t stride = static_cast<size_t>(gridDim.x) * kThreads;
  for (size_t i = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += stride) {
    const uint4 v = __ldcs(in + i);
    sum += v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0x12345678u) *out = sum;  // Keeps the reads alive.
}

__global__ void __launch_bounds__(kThreads) MmaRateKernel(int steps, float* out) {
  float acc[kChains][4] = {};
  const uint32_t a[4] = {threadIdx.x, 1, 2, 3};
  for (int s = 0; s < steps; ++s) {
    GPU_UNROLL
    for (int c = 0; c < kChains; ++c) gpu::MmaBf16(acc[c], a, threadIdx.x, 7);
  }
  float sum = 0;
  for (int c = 0; c < kChains; ++c) sum += acc[c][0] + acc[c][1] + acc[c][2] + acc[c][3];
  if (sum == 1.5f) *out = sum;
}

__global__ void EmptyKernel() {}

// The shortest of some rounds, by the device's own clock.
double ShortestSeconds(const std::function<void()>& work) {
  cudaEvent_t begin = nullptr, end = nullptr;
  gpu::CheckCuda(cudaEventCreate(&begin));
  gpu::CheckCuda(cudaEventCreate(&end));
  float shortest = 0;
  for (int round = 0; round < kRounds; ++round) {
    gpu::CheckCuda(cudaEventRecord(begin, nullptr));
    work();
    gpu::CheckCuda(cudaEventRecord(end, nullptr));
    gpu::CheckCuda(cudaEventSynchronize(end));
    float ms = 0;
    gpu::CheckCuda(cudaEventElapsedTime(&ms, begin, end));
    shortest = round == 0 ? ms : std::min(shortest, ms);
  }
  gpu::CheckCuda(cudaEventDestroy(begin));
  gpu::CheckCuda(cudaEventDestroy(end));
  return static_cast<double>(shortest) / 1e3;
}

}  // namespace

DeviceLimits MeasureLimits(size_t bytes, int mma_steps) {
  int processors = 0;
  gpu::CheckCuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  const unsigned blocks = static_cast<unsigned>(processors * kBlocksPerProcessor);
  const gpu::LaunchConfig config{dim3(blocks), dim3(kThreads)};
  DeviceLimits limits;
  const gpu::DeviceArray<char> source(bytes), target(bytes);
  const gpu::DeviceArray<uint32_t> sink(1);
  gpu::CheckCuda(cudaMemset(source.data(), 1, bytes));
  limits.copy_bytes_per_s = 2.0 * static_cast<double>(bytes) / ShortestSeconds([&] {
                              gpu::CheckCuda(cudaMemcpyAsync(target.data(), source.data(), bytes,
                                                             cudaMemcpyDeviceToDevice, nullptr));
                            });
  limits.read_bytes_per_s =
      static_cast<double>(bytes) / ShortestSeconds([&] {
        gpu::CheckCuda(gpu::Launch(&ReadSumKernel, config,
                                   reinterpret_cast<const uint4*>(source.data()),
                                   bytes / sizeof(uint4), sink.data()));
      });
  const double warps = static_cast<double>(blocks) * kThreads / 32;
  limits.mma_flops_per_s = warps * mma_steps * kChains * 2 * 16 * 8 * 16 / ShortestSeconds([&] {
                             gpu::CheckCuda(gpu::Launch(&MmaRateKernel, config, mma_steps,
                                                        reinterpret_cast<float*>(sink.data())));
                           });
  constexpr int kLaunches = 200;
  limits.launch_s = ShortestSeconds([&] {
                      for (int i = 0; i < kLaunches; ++i) {
                        gpu::CheckCuda(gpu::Launch(&EmptyKernel, {dim3(1), dim3(32)}));
                      }
                    }) /
                    kLaunches;
  return limits;
}

}  // namespace vitrine::gpu_check
