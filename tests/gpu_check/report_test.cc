// What the file of the program gpu_check says, whatever ends it: over the emulated device, which
// fails when it is told to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/client/subprocess.h"

namespace vitrine::gpu_check {
namespace {

using client::Outcome;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class ReportTest : public ::testing::Test {
 protected:
  ~ReportTest() override {
    unsetenv("EMU_FAULT_AT");
    unlink(path_.c_str());
  }

  // With the device failing in the launch `fault_at`; 0: never.
  Outcome Run(int fault_at, std::vector<std::string> flags) {
    setenv("EMU_FAULT_AT", std::to_string(fault_at).c_str(), 1);
    flags.insert(flags.begin(), {GPU_CHECK, "--json=" + path_});
    return client::RunToEnd(flags);
  }
  Json File() const { return Json::parse(client::ReadFile(path_)); }

  const std::string path_ =
      ::testing::TempDir() + "/gpu_check." + std::to_string(getpid()) + ".json";
};

TEST_F(ReportTest, AfterTheEndNothingRuns) {
  const Outcome outcome = Run(0, {"--check_only", "--gtest_filter=RandomWeights*"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json file = File();
  EXPECT_EQ(file.at("tests").at("passed"), 3);
  EXPECT_EQ(file.at("tests").at("suites").at("RandomWeightsTest").at("passed"), 3);
  EXPECT_TRUE(file.at("device").at("emulated"));
  EXPECT_FALSE(file.contains("running"));
  EXPECT_FALSE(file.contains("failures"));
}

// The rest would be that fault again.
TEST_F(ReportTest, AFaultOfTheDeviceEndsTheTests) {
  const Outcome outcome = Run(3, {"--check_only", "--gtest_filter=*RmsNormTest*cuda*"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("gpu_check: the device failed: "));
  const Json file = File();
  EXPECT_FALSE(file.at("device_fault").get<std::string>().empty());
  EXPECT_THAT(file.at("running").get<std::string>(), HasSubstr("RmsNormTest"));
  EXPECT_EQ(file.at("tests").at("passed").get<int>() + file.at("tests").at("failed").get<int>(), 1);
}

TEST_F(ReportTest, AFaultOfTheDeviceLeavesNoTimes) {
  constexpr int kPastTheLimits = 1450;  // Which take 7 rounds of 202 launches.
  const Outcome outcome = Run(kPastTheLimits, {"--speed_only"});
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  const Json file = File();
  EXPECT_EQ(file.at("running"), "kernels");
  EXPECT_TRUE(file.contains("device_fault"));
  EXPECT_FALSE(file.at("kernels").empty());
  EXPECT_FALSE(file.contains("steps"));
}

TEST_F(ReportTest, WhatEndsTheProgramIsNamed) {
  client::Subprocess program({GPU_CHECK, "--json=" + path_, "--check_only",
                              "--gtest_filter=*EveryBackendDrawsTheDefinedToken*cuda*"});
  ASSERT_TRUE(program.WaitForOut("[ RUN      ]"));
  while (File().at("running") == "start") usleep(1000);
  program.Signal(SIGKILL);
  EXPECT_EQ(program.Wait(), 128 + SIGKILL);
  EXPECT_THAT(File().at("running").get<std::string>(), HasSubstr("SampleTest.EveryBackendDraws"));
}

TEST_F(ReportTest, AFileThatCannotBeWrittenIsNamed) {
  const Outcome outcome = client::RunToEnd({GPU_CHECK, "--json=/no/such/folder/report.json"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("gpu_check: cannot write /no/such/folder/report.json"));
}

}  // namespace
}  // namespace vitrine::gpu_check
