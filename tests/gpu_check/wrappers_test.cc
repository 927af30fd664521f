// On a device: the wrapped instructions against what the emulator's host bodies gave when this
// program was built. Under the emulator: the same in several orders of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/gpu_check/ptx_wrappers.h"
#include "tests/test_data.h"

namespace vitrine::gpu_check {
namespace {

TEST(WrappersTest, GiveTheBitsOfTheEmulator) {
  std::ifstream file(testing::TestData() + "/gpu_check/wrappers.txt");
  ASSERT_TRUE(file) << "no stored results";
  for (const WrapperResult& result : RunWrappers()) {
    std::string stored;
    ASSERT_TRUE(std::getline(file, stored)) << result.name << " has no stored result";
    const std::string text = ToText({result});
    EXPECT_EQ(stored + "\n", text);
    // A device that wrote nothing would leave one value everywhere.
    EXPECT_TRUE(std::ranges::any_of(result.words, [&](uint32_t w) { return w != result.words[0]; }))
        << result.name;
  }
}

}  // namespace
}  // namespace vitrine::gpu_check
