// A turn of the engine allocates nothing once its buffers have grown: neither while it decodes nor
// while it computes a prompt in chunks.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "tests/server/engine_harness.h"
#include "tests/server/fake_runner.h"
#include "tests/server/real_model.h"

namespace {
std::atomic<int64_t> g_allocations{0};
}  // namespace

// Not inlined: the compiler would take the pair of new and free for a mistake.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++g_allocations;
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace vitrine::server {
namespace {

constexpr EngineOptions kOptions = {
    .scheduler = {.max_running_sequences = 12, .max_step_tokens = 64, .prefill_chunk_tokens = 8},
    .prefix_cache = true,
    .hash_key = {1, 2}};

GenerationRequest Request(int prompt, int max_tokens, int choices) {
  GenerationRequest request;
  for (int i = 0; i < prompt; ++i) request.prompt.push_back(7 + i % 200);
  request.stop.max_length = prompt + max_tokens;
  request.stop.ignore_eos = true;
  request.num_choices = choices;
  request.sampling = {.temperature = 1.0f, .seed = 3};
  return request;
}

// Allocations of all threads during the engine's turns, but not during those of delivery.
int64_t AllocationsOfTurns(Runner& runner, const Tokenizer& tokenizer) {
  constexpr int kWarmUp = 24;
  constexpr int kCounted = 40;
  EngineHarness harness(kOptions, runner, tokenizer);
  for (int i = 0; i < 4; ++i) harness.Send(Request(5 + i, 300, 1));
  harness.Send(Request(40, 300, 4));
  // Its prompt outlasts the test.
  harness.Send(Request(900, 1, 1));
  int64_t counted = 0;
  for (int turn = 0; turn < kWarmUp + kCounted; ++turn) {
    const int64_t before = g_allocations;
    EXPECT_TRUE(harness.engine().Turn());
    if (turn >= kWarmUp) counted += g_allocations - before;
    harness.delivery().Deliver();
  }
  EXPECT_EQ(harness.engine().load().running_sequences, 9);
  harness.engine().Stop();
  harness.RunAll();
  return counted;
}

TEST(EngineAllocation, CountsAllocations) {
  const int64_t before = g_allocations;
  const auto owned = std::make_unique<int>(1);
  EXPECT_EQ(g_allocations - before, 1);
}

TEST(EngineAllocation, NoneWithAFakeModel) {
  const FakeTokenizer tokenizer;
  FakeRunner runner({.max_step_rows = 64,
                     .max_step_sequences = 12,
                     .num_blocks = 512,
                     .context_length = 1024,
                     .vocabulary = tokenizer.vocabulary(),
                     .runs_ahead = true});
  EXPECT_EQ(AllocationsOfTurns(runner, tokenizer), 0);
}

TEST(EngineAllocation, NoneWithTheRealModel) {
  RealModel model;
  // The backend's scratch grows with the longest sequence it has seen: the same load once before.
  AllocationsOfTurns(model.runner(), model.tokenizer());
  EXPECT_EQ(AllocationsOfTurns(model.runner(), model.tokenizer()), 0);
}

}  // namespace
}  // namespace vitrine::server
