// The tests of all backends, by default for the cuda backend alone, and those of its parts. Left
// out are those of the sampler's distribution, which take half of the time: SampleTest compares its
// tokens with the ones that are defined, bit for bit.
#include <gmock/gmock.h>

int main(int argc, char** argv) {
  GTEST_FLAG_SET(filter, "*cuda*:RecordedArraysTest.*-SamplingDistributionTest.*");
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
