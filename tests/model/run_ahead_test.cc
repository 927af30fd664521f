// A runner that runs ahead draws what one does that computes step by step.
#include <gtest/gtest.h>

#include "tests/model/random_streams.h"

namespace vitrine::testing {
namespace {

TEST(RunAheadTest, DrawsTheSameOnTheReference) {
  RandomStreams("llama-gqa-tied-f32", "reference", Numerics::kExact, 1).Run(150);
}

TEST(RunAheadTest, DrawsTheSameOnTheCpu) {
  RandomStreams(RandomName(DType::kQ4_1), "cpu", Numerics::kFast, 2).Run(300);
}

// Whose layers hold a mixture of experts, for which the host waits within a step.
TEST(RunAheadTest, DrawsTheSameWithExperts) {
  RandomStreams("mixtral-bf16", "cpu", Numerics::kFast, 3).Run(150);
}

}  // namespace
}  // namespace vitrine::testing
