// Starts where no CUDA device can be used, whatever the build and the machine have.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "tests/e2e/server_process.h"

namespace vitrine {
namespace {

class CudaAbsentTest : public testing::Test {
 protected:
  CudaAbsentTest() { setenv("CUDA_VISIBLE_DEVICES", "", 1); }
  ~CudaAbsentTest() override { unsetenv("CUDA_VISIBLE_DEVICES"); }
};

TEST_F(CudaAbsentTest, AskingForItIsRefusedInOneLine) {
  const ExitReport report = ServerProcess::Run({"--model=" + TestModelPath(), "--backend=cuda"});
  EXPECT_EQ(report.exit_code, 1);
  EXPECT_TRUE(report.standard_error.starts_with("vitrine-server: no usable CUDA device: "))
      << report.standard_error;
  EXPECT_EQ(std::count(report.standard_error.begin(), report.standard_error.end(), '\n'), 1);
}

TEST_F(CudaAbsentTest, AutoServesOnTheCpu) {
  ExitReport report;
  const auto server = ServerProcess::Start(
      {"--model=" + TestModelPath(), "--backend=auto", "--context_length=256"}, &report);
  ASSERT_NE(server, nullptr) << report.standard_error;
  server->Signal(SIGTERM);
  report = server->Wait();
  EXPECT_EQ(report.exit_code, 0);
  EXPECT_NE(report.standard_error.find(" on cpu ("), std::string::npos) << report.standard_error;
}

}  // namespace
}  // namespace vitrine
