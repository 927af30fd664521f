// What a step of decoding costs the host.
#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "cuda_emulator/options.h"
#include "tests/model/model_on_backend.h"

namespace vitrine::testing {
namespace {

// The second step of a shape is recorded, the third replayed.
TEST(DecodeStepTest, AllocatesNothingAndWaitsForItsTokensAlone) {
  ModelOnBackend cuda(RandomName(DType::kQ8_0), "cuda", Numerics::kFast);
  const std::vector<TokenId> tokens = RandomTokens(8, cuda.vocabulary(), 5);
  cuda.Logits({{.tokens = tokens}});
  cuda.Logits({{.sequence = 1, .tokens = tokens}});
  std::vector<TokenId> last = {tokens[0], tokens[1]};
  const emu::Stats& stats = emu::stats();
  for (int step = 0; step < 6; ++step) {
    const int position = 8 + step;
    const emu::Stats before = stats;
    const Batch batch = cuda.MakeBatch({{.begin = position, .tokens = {last[0]}},
                                        {.sequence = 1, .begin = position, .tokens = {last[1]}}});
    cuda.runner().Step(batch, last);
    if (step < 2) continue;
    EXPECT_EQ(stats.allocations, before.allocations);
    EXPECT_EQ(stats.synchronizations, before.synchronizations + 1);
    EXPECT_EQ(stats.graph_launches, before.graph_launches + 1);
  }

  // A step that is not recorded is as frugal.
  cuda.runner().set_records(false);
  const emu::Stats before = stats;
  cuda.runner().Step(cuda.MakeBatch({{.begin = 14, .tokens = {last[0]}}}),
                     std::span(last).first(1));
  EXPECT_EQ(stats.allocations, before.allocations);
  EXPECT_EQ(stats.synchronizations, before.synchronizations + 1);
  EXPECT_EQ(stats.graph_launches, before.graph_launches);
}

// So does one whose successor is enqueued before it waits, in which case that is what it enqueues.
TEST(DecodeStepTest, RunningAheadIsAsFrugal) {
  ModelOnBackend cuda(RandomName(DType::kQ8_0), "cuda", Numerics::kFast);
  cuda.runner().set_runs_ahead(true);
  std::vector<TokenId> last = {3, 4};
  const emu::Stats& stats = emu::stats();
  for (int step = 0; step < 30; ++step) {
    const emu::Stats before = stats;
    Batch batch = cuda.MakeBatch({{.begin = step, .tokens = {last[0]}},
                                  {.sequence = 1, .begin = step, .tokens = {last[1]}}});
    batch.continuing = {0, 1};
    cuda.runner().Step(batch, last);
    if (step < 2) continue;
    EXPECT_EQ(stats.allocations, before.allocations) << step;
    EXPECT_EQ(stats.synchronizations, before.synchronizations + 1);
    EXPECT_EQ(stats.graph_launches, before.graph_launches + 1);
  }
}

}  // namespace
}  // namespace vitrine::testing
