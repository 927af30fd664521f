// Runs one case of the fault matrix: fault_runner NAME. Exit 0: the result was right (a planted
// fault was missed); 1: wrong result; 2: the emulator stopped the kernel; a sanitizer or a
// signal has its own code. Without a name: lists the cases.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "cuda_emulator/device_array.h"
#include "cuda_emulator/faults/fault_kernels.h"

namespace vitrine::faults {
namespace {

using gpu::CheckCuda, gpu::DeviceArray, gpu::Launch;
using Bf16 = __nv_bfloat16;

// Small values that bf16 holds exactly.
float Value(size_t i) { return static_cast<float>(static_cast<int>(i * 37 % 61) - 30) / 32.0f; }
template <class T>
std::vector<T> Values(size_t n) {
  std::vector<T> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = T(Value(i + n));
  return v;
}
bool Near(double got, double want) {  // NaN is not near anything
  return std::abs(got - want) <= 0.02 * std::max(1.0, std::abs(want));
}

template <Fault kFault = Fault::kNone>
bool Norm(int rows = 4) {
  constexpr int kHidden = 1024, kThreads = 128;
  const auto x = Values<Bf16>(size_t(rows) * kHidden);
  DeviceArray<Bf16> dx(x), dy(x.size());
  CheckCuda(Launch(&NormKernel<kFault, kThreads>, {dim3(rows), dim3(kThreads)}, dx.data(),
                   dy.data(), kHidden));
  const auto y = dy.ToHost();
  bool ok = true;
  for (int r = 0; r < rows; ++r) {
    double sum = 0;
    for (int i = 0; i < kHidden; ++i) sum += std::pow(float(x[r * kHidden + i]), 2);
    const double scale = 1 / std::sqrt(sum / kHidden);
    for (int i = r * kHidden; i < (r + 1) * kHidden; ++i) {
      ok = ok && Near(float(y[i]), float(x[i]) * scale);
    }
  }
  return ok;
}

template <Fault kFault = Fault::kNone>
bool Decode(std::vector<int> context) {
  constexpr int kDim = 64, kPage = 16, kWarps = 4;
  int max_pages = 0, pages = 0;
  for (int c : context) max_pages = std::max(max_pages, (c + kPage - 1) / kPage);
  std::vector<int> table(context.size() * max_pages, -1);  // -1: no page, must never be used
  for (size_t s = 0; s < context.size(); ++s) {
    for (int p = 0; p < (context[s] + kPage - 1) / kPage; ++p) table[s * max_pages + p] = pages++;
  }
  auto q = Values<float>(context.size() * kDim);
  for (float& x : q) x /= 16;  // flat weights: every key counts
  const auto k = Values<float>(size_t(pages) * kPage * kDim);
  auto v = k;
  for (size_t i = 0; i < v.size(); ++i) v[i] = Value(i / kDim * 7 + i % kDim);
  DeviceArray<float> dq(q), dk(k), dv(v), out(q.size());
  DeviceArray<int> dt(table), dc(context);
  CheckCuda(Launch(&DecodeKernel<kFault, kWarps>,
                   {dim3(unsigned(context.size())), dim3(kWarps * 32)}, dq.data(), dk.data(),
                   dv.data(), dt.data(), dc.data(), out.data(), max_pages));
  const auto o = out.ToHost();
  bool ok = true;
  for (size_t s = 0; s < context.size(); ++s) {
    double sum = 0, want[kDim] = {};
    for (int t = 0; t < context[s]; ++t) {
      const size_t at = (size_t(table[s * max_pages + t / kPage]) * kPage + t % kPage) * kDim;
      double score = 0;
      for (int d = 0; d < kDim; ++d) score += double(q[s * kDim + d]) * k[at + d];
      sum += std::exp(score);
      for (int d = 0; d < kDim; ++d) want[d] += std::exp(score) * v[at + d];
    }
    for (int d = 0; d < kDim; ++d) {
      ok = ok && std::abs(o[s * kDim + d] - want[d] / sum) < 1e-4;
    }
  }
  return ok;
}

template <Fault kFault = Fault::kNone>
bool Product() {
  constexpr int kDepth = 480;
  const auto a = Values<Bf16>(64 * kDepth), b = Values<Bf16>(64 * kDepth);
  DeviceArray<Bf16> da(a), db(b);
  DeviceArray<float> out(64 * 64);
  CheckCuda(Launch(&ProductKernel<kFault>, {dim3(1), dim3(128)}, da.data(), db.data(), out.data(),
                   kDepth));
  const auto o = out.ToHost();
  bool ok = true;
  for (int i = 0; i < 64 * 64; ++i) {
    double want = 0;
    for (int k = 0; k < kDepth; ++k) {
      want += double(float(a[i / 64 * kDepth + k])) * float(b[i % 64 * kDepth + k]);
    }
    ok = ok && Near(o[i], want);
  }
  return ok;
}

template <Fault kFault = Fault::kNone>
bool Exchange() {
  const auto in = Values<float>(512);
  DeviceArray<float> di(in), out(512);
  CheckCuda(Launch(&ExchangeKernel<kFault>, {dim3(2), dim3(256)}, di.data(), out.data()));
  const auto o = out.ToHost();
  bool ok = true;
  for (int i = 0; i < 512; ++i) ok = ok && o[i] == in[i / 32 * 32 + 31 - i % 32];
  return ok;
}

template <Fault kFault = Fault::kNone>
bool Histogram() {
  std::vector<int> in(5000), want(16);
  for (size_t i = 0; i < in.size(); ++i) ++want[(in[i] = int(i * 2654435761u >> 8 & 0xffff)) % 16];
  DeviceArray<int> di(in), out(std::vector<int>(16, 0));
  CheckCuda(Launch(&HistogramKernel<kFault>, {dim3(4), dim3(128)}, di.data(), int(in.size()),
                   out.data()));
  return out.ToHost() == want;
}

template <Fault kFault = Fault::kNone>
bool EvenLanes() {
  std::vector<int> in(32), want(32, 0);
  for (int i = 0; i < 32; ++i) in[i] = i + 1;
  for (int i = 0; i < 32; i += 2) want[i] = 256;  // 1 + 3 + .. + 31
  DeviceArray<int> di(in), out(32);
  CheckCuda(Launch(&EvenLanesKernel<kFault>, {dim3(1), dim3(32)}, di.data(), out.data()));
  return out.ToHost() == want;
}

template <Fault kFault = Fault::kNone>
bool Reverse(int n) {
  DeviceArray<float> out(n);
  CheckCuda(Launch(&ReverseKernel<kFault>, {dim3(1), dim3(64), n * sizeof(float)}, out.data(), n));
  const auto o = out.ToHost();
  bool ok = true;
  for (int i = 0; i < n; ++i) ok = ok && o[i] == float(n - 1 - i);
  return ok;
}

// ---- host code -----------------------------------------------------------------------------
struct TwoStreams {
  cudaStream_t a, b;
  TwoStreams() { cudaStreamCreate(&a), cudaStreamCreate(&b); }
  ~TwoStreams() { cudaStreamDestroy(a), cudaStreamDestroy(b); }
};

template <bool kSync>
bool Pinned() {  // kSync false: result read before the copy back is known to be done
  TwoStreams s;
  int* host;
  CheckCuda(cudaMallocHost(reinterpret_cast<void**>(&host), 64 * sizeof(int)));
  memset(host, 0, 64 * sizeof(int));
  DeviceArray<int> d(64);
  cudaMemcpyAsync(d.data(), host, 256, cudaMemcpyHostToDevice, s.a);
  CheckCuda(Launch(&AddOneKernel, {dim3(1), dim3(64), 0, s.a}, d.data(), 64));
  cudaMemcpyAsync(host, d.data(), 256, cudaMemcpyDeviceToHost, s.a);
  if (kSync) cudaStreamSynchronize(s.a);
  bool ok = true;
  for (int i = 0; i < 64; ++i) ok = ok && host[i] == 1;
  cudaStreamSynchronize(s.a);
  cudaFreeHost(host);
  return ok;
}

template <bool kWait>
bool StreamUsesStream() {  // stream b uses what stream a makes
  TwoStreams s;
  DeviceArray<int> d(64);
  cudaMemsetAsync(d.data(), 0, 256, s.a);
  CheckCuda(Launch(&AddOneKernel, {dim3(1), dim3(64), 0, s.a}, d.data(), 64));
  cudaEvent_t done;
  cudaEventCreate(&done);
  cudaEventRecord(done, s.a);
  if (kWait) cudaStreamWaitEvent(s.b, done, 0);
  CheckCuda(Launch(&AddOneKernel, {dim3(1), dim3(64), 0, s.b}, d.data(), 64));
  std::vector<int> h(64);
  cudaMemcpyAsync(h.data(), d.data(), 256, cudaMemcpyDeviceToHost, s.b);
  cudaStreamSynchronize(s.b);
  cudaEventDestroy(done);
  return h == std::vector<int>(64, 2);
}

template <bool kFence>
bool LastBlock() {
  std::vector<int> in(32 * 9);
  int want = 0;
  for (size_t i = 0; i < in.size(); ++i) want += in[i] = int(i);
  DeviceArray<int> di(in), partial(9), out(1);
  DeviceArray<unsigned> ticket(std::vector<unsigned>{0});
  CheckCuda(Launch(&LastBlockSumKernel<kFence>, {dim3(9), dim3(32)}, di.data(), partial.data(),
                   ticket.data(), out.data()));
  return out.ToHost()[0] == want;
}

bool SameCell() {
  DeviceArray<int> d(1);
  CheckCuda(Launch(&SameCellKernel, {dim3(2), dim3(32)}, d.data()));
  return d.ToHost()[0] == 7;
}

bool HostPointer() {
  std::vector<int> h(64);
  CheckCuda(Launch(&AddOneKernel, {dim3(1), dim3(64)}, h.data(), 64));
  return cudaDeviceSynchronize() == cudaSuccess;
}

bool HostReadsDevice() {
  DeviceArray<int> d(std::vector<int>(64, 3));
  return d.data()[5] == 3;
}

bool SharedWithoutOptIn() {
  DeviceArray<float> out(16000);
  return Launch(&ReverseKernel<Fault::kNone>, {dim3(1), dim3(64), 64000}, out.data(), 16000) ==
         cudaSuccess;
}

bool HugeBlock() {
  DeviceArray<int> d(64);
  return Launch(&AddOneKernel, {dim3(1), dim3(2048)}, d.data(), 64) == cudaSuccess;
}

bool AllCorrect() {
  return Norm() && Decode({9, 40}) && Product() && Exchange() && Histogram() && EvenLanes() &&
         Reverse(500) && Pinned<true>() && StreamUsesStream<true>() && LastBlock<true>();
}

const struct {
  const char* name;
  bool (*run)();
} kCases[] = {
    {"none", AllCorrect},
    {"norm-missing-barrier", [] { return Norm<Fault::kMissingBarrier>(); }},
    {"norm-uninitialised-shared", [] { return Norm<Fault::kUninitialisedShared>(); }},
    {"norm-oob-global-read", [] { return Norm<Fault::kOutOfBoundsGlobal>(1); }},
    {"norm-oob-shared-write", [] { return Norm<Fault::kOutOfBoundsShared>(); }},
    {"norm-divergent-barrier", [] { return Norm<Fault::kDivergentBarrier>(); }},
    {"norm-misaligned-vector", [] { return Norm<Fault::kMisalignedVector>(); }},
    {"decode-missing-barrier", [] { return Decode<Fault::kMissingBarrier>({9, 40}); }},
    {"decode-uninitialised-shared", [] { return Decode<Fault::kUninitialisedShared>({2, 40}); }},
    {"decode-oob-table", [] { return Decode<Fault::kOutOfBoundsGlobal>({32}); }},
    {"decode-past-context", [] { return Decode<Fault::kOutOfBoundsGlobal>({20}); }},
    {"product-missing-async-wait", [] { return Product<Fault::kMissingAsyncWait>(); }},
    {"product-overwrite-tile", [] { return Product<Fault::kOverwriteTile>(); }},
    {"exchange-missing-syncwarp", [] { return Exchange<Fault::kMissingSyncwarp>(); }},
    {"histogram-non-atomic", [] { return Histogram<Fault::kNonAtomicUpdate>(); }},
    {"mask-wrong", [] { return EvenLanes<Fault::kWrongMask>(); }},
    {"dynamic-overflow", [] { return Reverse<Fault::kDynamicOverflow>(500); }},
    {"host-read-before-sync", Pinned<false>},
    {"host-missing-event-wait", StreamUsesStream<false>},
    {"host-missing-threadfence", LastBlock<false>},
    {"host-two-blocks-one-cell", SameCell},
    {"host-pointer-argument", HostPointer},
    {"host-reads-device-memory", HostReadsDevice},
    {"host-shared-without-opt-in", SharedWithoutOptIn},
    {"host-block-of-2048", HugeBlock},
};

int Run(const char* name) {
  for (const auto& c : kCases) {
    if (strcmp(c.name, name) != 0) continue;
    bool right = false;
    const std::string reason = emu::StopReason([&] { right = c.run(); });
    if (!reason.empty()) {
      printf("%s: stopped: %s\n", name, reason.c_str());
      return 2;
    }
    printf("%s: %s\n", name, right ? "right" : "wrong");
    return right ? 0 : 1;
  }
  return 9;
}

}  // namespace
}  // namespace vitrine::faults

int main(int argc, char** argv) {
  if (argc == 2) return vitrine::faults::Run(argv[1]);
  for (const auto& c : vitrine::faults::kCases) printf("%s\n", c.name);
}
