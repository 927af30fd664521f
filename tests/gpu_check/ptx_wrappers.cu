#include <cstdio>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/reduce.h"
#include "tests/cuda_emulator/device_array.h"
#include "tests/gpu_check/ptx_wrappers.h"

namespace vitrine::gpu_check {
namespace {

constexpr int kLanes = 32;

// Integers between -8 and 7 as bf16: their products and sums are exact in any order.
__device__ inline float SmallInteger(uint32_t n) {
  return static_cast<float>(n * 2654435761u >> 28) - 8.0f;
}

__device__ inline uint32_t Bits(float value) { return __float_as_uint(value); }

// Every lane's accumulators after four products: [lane][4].
__global__ void MmaKernel(uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  float d[4];
  for (uint32_t i = 0; i < 4; ++i) d[i] = SmallInteger(1000 + lane * 4 + i);
  for (uint32_t step = 0; step < 4; ++step) {
    uint32_t a[4];
    for (uint32_t r = 0; r < 4; ++r) {
      const uint32_t n = (step * kLanes + lane) * 8 + r * 2;
      a[r] = gpu::PackBf16(SmallInteger(n), SmallInteger(n + 1));
    }
    const uint32_t n = 5000 + (step * kLanes + lane) * 4;
    gpu::MmaBf16(d, a, gpu::PackBf16(SmallInteger(n), SmallInteger(n + 1)),
                 gpu::PackBf16(SmallInteger(n + 2), SmallInteger(n + 3)));
  }
  for (uint32_t i = 0; i < 4; ++i) out[lane * 4 + i] = Bits(d[i]);
}

struct alignas(16) PaddedRows {
  uint16_t value[32][24];
};

// Both forms of ldmatrix, of 32 padded rows: [lane][8].
__global__ void LdMatrixKernel(uint32_t* out) {
  GPU_SHARED(rows, PaddedRows);
  auto& tile = rows.value;
  const uint32_t lane = threadIdx.x;
  for (uint32_t c = 0; c < 24; ++c) tile[lane][c] = static_cast<uint16_t>(lane * 256 + c);
  __syncwarp();
  uint32_t plain[4], transposed[4];
  gpu::LdMatrixX4(plain, &tile[lane][lane / 16 * 8]);
  gpu::LdMatrixX4Trans(transposed, &tile[(lane * 5 + 3) % 32][8]);
  for (uint32_t i = 0; i < 4; ++i) {
    out[lane * 8 + i] = plain[i];
    out[lane * 8 + 4 + i] = transposed[i];
  }
}

// Two groups of copies, of which odd lanes' are not valid: what each wait let through, [lane][8].
__global__ void CpAsyncKernel(const uint4* in, uint4* out) {
  GPU_SHARED(first, uint4[kLanes]);
  GPU_SHARED(second, uint4[kLanes]);
  const uint32_t lane = threadIdx.x;
  const bool valid = lane % 2 == 0;
  gpu::CpAsync16(&first[lane], &in[lane], valid);
  gpu::CpAsyncCommit();
  gpu::CpAsync16(&second[lane], &in[kLanes + lane]);
  gpu::CpAsyncCommit();
  gpu::CpAsyncWait<1>();
  __syncwarp();
  out[lane * 2] = first[(lane + 7) % kLanes];
  gpu::CpAsyncWait<0>();
  __syncwarp();
  out[lane * 2 + 1] = second[(lane + 9) % kLanes];
}

// Rounding of pairs to bf16: ties, denormals, infinities, NaN, [lane].
__global__ void PackBf16Kernel(const uint32_t* in, uint32_t* out) {
  const uint32_t lane = threadIdx.x;
  out[lane] = gpu::PackBf16(__uint_as_float(in[lane]), __uint_as_float(in[(lane + 1) % kLanes]));
}

// The functions of reduce.h, with values whose sums depend on the order: [lane][7].
__global__ void WarpKernel(uint32_t* out) {
  GPU_SHARED(scratch, float[8]);
  const uint32_t lane = threadIdx.x % kLanes, thread = threadIdx.x;
  const float value = SmallInteger(thread) * (1.0f + static_cast<float>(thread) * 0x1p-20f);
  const float results[] = {gpu::WarpSum(value),
                           gpu::WarpReduceByShuffles<gpu::Sum>(value),
                           gpu::WarpMax(value),
                           gpu::QuadSum(value),
                           gpu::QuadMax(value),
                           gpu::WarpInclusiveSum(value),
                           gpu::BlockSum<256>(value, scratch)};
  if (thread / kLanes != 3) return;
  for (uint32_t i = 0; i < 7; ++i) out[lane * 7 + i] = Bits(results[i]);
}

// The first kernel's result, which the second may only read after it has waited for it.
__global__ void WriteKernel(uint32_t* out) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = blockIdx.x * 1000 + threadIdx.x;
}
__global__ void ReadKernel(const uint32_t* in, uint32_t* out, uint32_t size) {
  gpu::WaitForPrevious();
  const uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
  out[at] = in[size - 1 - at];
}

std::vector<uint32_t> Bf16Cases() {
  std::vector<uint32_t> cases = {0x00000000, 0x80000000, 0x3f800000, 0x3f808000, 0x3f818000,
                                 0x3f807fff, 0x3f808001, 0x7f7fffff, 0x7f800000, 0xff800000,
                                 0x7f7f7fff, 0x00000001, 0x00008000, 0x00018000, 0x007fffff,
                                 0x80008001, 0x7fc00000, 0xffc00001, 0x7f800001};
  while (cases.size() < kLanes) {
    cases.push_back(static_cast<uint32_t>(cases.size()) * 0x07654321u % 0x7f000000u);
  }
  return cases;
}

WrapperResult RunCpAsync() {
  std::vector<uint32_t> words(2 * kLanes * 4);
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint32_t>(i) * 0x01010101u;
  const gpu::DeviceArray<uint32_t> in(words), out(words.size());
  gpu::CheckCuda(gpu::Launch(&CpAsyncKernel, {dim3(1), dim3(kLanes)},
                             reinterpret_cast<const uint4*>(in.data()),
                             reinterpret_cast<uint4*>(out.data())));
  return {"cp.async", out.ToHost()};
}

WrapperResult RunDependentLaunch() {
  constexpr uint32_t kBlocks = 8, kThreads = 128;
  const gpu::DeviceArray<uint32_t> between(kBlocks * kThreads), out(kBlocks * kThreads);
  cudaStream_t stream = nullptr;
  gpu::CheckCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  gpu::LaunchConfig config{dim3(kBlocks), dim3(kThreads), 0, stream};
  gpu::CheckCuda(gpu::Launch(&WriteKernel, config, between.data()));
  config.overlap_previous = true;
  gpu::CheckCuda(gpu::Launch(&ReadKernel, config, between.data(), out.data(), kBlocks * kThreads));
  gpu::CheckCuda(cudaStreamSynchronize(stream));
  gpu::CheckCuda(cudaStreamDestroy(stream));
  return {"griddepcontrol", out.ToHost()};
}

}  // namespace

std::vector<WrapperResult> RunWrappers() {
  std::vector<WrapperResult> results;
  const gpu::LaunchConfig warp{dim3(1), dim3(kLanes)};
  {
    const gpu::DeviceArray<uint32_t> out(kLanes * 4);
    gpu::CheckCuda(gpu::Launch(&MmaKernel, warp, out.data()));
    results.push_back({"mma.m16n8k16", out.ToHost()});
  }
  {
    const gpu::DeviceArray<uint32_t> out(kLanes * 8);
    gpu::CheckCuda(gpu::Launch(&LdMatrixKernel, warp, out.data()));
    results.push_back({"ldmatrix", out.ToHost()});
  }
  results.push_back(RunCpAsync());
  {
    const gpu::DeviceArray<uint32_t> in(Bf16Cases()), out(kLanes);
    gpu::CheckCuda(gpu::Launch(&PackBf16Kernel, warp, in.data(), out.data()));
    results.push_back({"cvt.bf16", out.ToHost()});
  }
  {
    const gpu::DeviceArray<uint32_t> out(kLanes * 7);
    gpu::CheckCuda(gpu::Launch(&WarpKernel, {dim3(1), dim3(256)}, out.data()));
    results.push_back({"shuffles", out.ToHost()});
  }
  results.push_back(RunDependentLaunch());
  return results;
}

std::string ToText(const std::vector<WrapperResult>& results) {
  std::string text;
  for (const WrapperResult& result : results) {
    text += result.name;
    for (const uint32_t word : result.words) {
      char hex[16];
      snprintf(hex, sizeof hex, " %x", word);
      text += hex;
    }
    text += '\n';
  }
  return text;
}

}  // namespace vitrine::gpu_check
