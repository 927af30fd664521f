#include "kernels/cpu/calibration.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "kernels/cpu/page_arena.h"

namespace vitrine::cpu {
namespace {

constexpr int kRepetitions = 5;
constexpr size_t kReadBytes = size_t{512} << 20;
constexpr int64_t kIntegerLoops = 4'000'000;
constexpr int kPasses = 20'000;

// Best of several runs of work(worker) on all workers.
template <class Work>
double BestSeconds(ThreadPool& pool, Work work) {
  double best = 1e9;
  for (int i = 0; i < kRepetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    pool.Run([](void* context, int worker) { (*static_cast<Work*>(context))(worker); }, &work);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::min(best, elapsed.count());
  }
  return best;
}

double ReadRate(ThreadPool& pool) {
  PageArena arena;
  const Buffer memory = arena.AllocateBuffer(kReadBytes);
  auto* const words = memory.As<uint64_t>().data();
  if (words == nullptr) return 0;
  const size_t share = kReadBytes / sizeof(uint64_t) / static_cast<size_t>(pool.workers());
  // Pages that were never written are all the same zeros.
  BestSeconds(pool, [&](int worker) {
    std::fill_n(words + static_cast<size_t>(worker) * share, share, uint64_t{1});
  });
  const double seconds = BestSeconds(pool, [&](int worker) {
    const uint64_t* begin = words + static_cast<size_t>(worker) * share;
    uint64_t sum = 0;
    for (size_t i = 0; i < share; ++i) sum += begin[i];
    asm volatile("" : : "r"(sum));
  });
  const double bytes = static_cast<double>(share) * sizeof(uint64_t) * pool.workers();
  return bytes / seconds;
}

// Two workers pass a counter to and fro. On a virtual machine this tells whether the cores share a
// cache: about 50 ns where they do, 300 ns and more where they do not.
double HandoverSeconds(ThreadPool& pool) {
  if (pool.workers() < 2) return 0;
  alignas(64) std::atomic<int> counter{0};
  const double seconds = BestSeconds(pool, [&](int worker) {
    if (worker > 1) return;
    for (int i = worker; i < kPasses; i += 2) {
      while (counter.load(std::memory_order_acquire) != i) {
      }
      counter.store((i + 1) % kPasses, std::memory_order_release);
    }
  });
  return seconds / kPasses;
}

}  // namespace

Calibration Calibrate(ThreadPool& pool, const KernelTable& kernels) {
  Calibration result = {.read_bytes_per_s = ReadRate(pool), .handover_s = HandoverSeconds(pool)};
  if (kernels.integer_burst != nullptr) {
    double ops = 0;
    const double seconds = BestSeconds(pool, [&](int worker) {
      const double mine = kernels.integer_burst(kIntegerLoops);
      if (worker == 0) ops = mine;
    });
    result.int8_ops_per_s = ops * pool.workers() / seconds;
  }
  return result;
}

}  // namespace vitrine::cpu
