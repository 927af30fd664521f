// The program gpu_check where no device can be used, whatever the machine has.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "nlohmann/json.hpp"
#include "tests/client/subprocess.h"

namespace vitrine::gpu_check {
namespace {

TEST(AbsentDeviceTest, IsInTheFile) {
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  const std::string path =
      ::testing::TempDir() + "/no_device." + std::to_string(getpid()) + ".json";
  const client::Outcome outcome = client::RunToEnd({GPU_CHECK, "--json=" + path});
  EXPECT_EQ(outcome.exit_code, 2);
  const auto file = nlohmann::json::parse(client::ReadFile(path));
  unlink(path.c_str());
  const std::string error = file.at("device").at("error");
  EXPECT_EQ(error.rfind("no usable CUDA device: ", 0), 0u) << error;
  EXPECT_NE(outcome.err.find(error), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace vitrine::gpu_check
