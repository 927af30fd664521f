// The same on a device that works as late as it may, so that what the host reuses too early or
// reads too soon gives other tokens.
#include <gtest/gtest.h>

#include "cuda_emulator/options.h"
#include "tests/model/random_streams.h"

namespace vitrine::testing {
namespace {

class CudaRunAheadTest : public ::testing::TestWithParam<uint32_t> {
 protected:
  CudaRunAheadTest() {
    emu::options().deferred_streams = true;
    emu::Seed(GetParam());
  }
  ~CudaRunAheadTest() override { emu::options() = before_; }

 private:
  const emu::Options before_ = emu::options();
};

TEST_P(CudaRunAheadTest, DrawsTheSame) {
  RandomStreams(RandomName(DType::kQ8_0), "cuda", Numerics::kFast, GetParam()).Run(80);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CudaRunAheadTest, ::testing::Values(1u, 2u, 3u));

}  // namespace
}  // namespace vitrine::testing
