#include "tests/gpu_check/report.h"

#include <cstdio>
#include <fstream>
#include <utility>

namespace vitrine::gpu_check {
namespace {

// A suite without what the parameters of its instantiation add: "All/CudaModelTest".
std::string SuiteName(const ::testing::TestInfo& test) {
  const std::string name = test.test_suite_name();
  return name.substr(name.rfind('/') == std::string::npos ? 0 : name.rfind('/') + 1);
}

}  // namespace

void Report::Set(const std::string& section, nlohmann::json value) {
  root_[section] = std::move(value);
}

void Report::Append(const std::string& section, nlohmann::json value) {
  std::printf("%s %s\n", section.c_str(), value.dump().c_str());
  std::fflush(stdout);
  root_[section].push_back(std::move(value));
}

bool Report::Write(const std::string& path) const {
  std::ofstream file(path);
  file << root_.dump(2) << "\n";
  file.close();
  if (!file) std::fprintf(stderr, "gpu_check: cannot write %s\n", path.c_str());
  return file.good();
}

void TestListener::OnTestEnd(const ::testing::TestInfo& test) {
  nlohmann::json& suite = suites_[SuiteName(test)];
  if (suite.is_null()) suite = nlohmann::json::object();
  const ::testing::TestResult& result = *test.result();
  const char* const outcome = result.Failed() ? "failed" : result.Skipped() ? "skipped" : "passed";
  suite[outcome] = suite.value(outcome, 0) + 1;
  if (!result.Failed()) return;
  nlohmann::json failure = {{"test", std::string(test.test_suite_name()) + "." + test.name()}};
  for (int i = 0; i < result.total_part_count(); ++i) {
    if (!result.GetTestPartResult(i).failed()) continue;
    failure["message"] = result.GetTestPartResult(i).message();
    break;
  }
  report_.Append("failures", std::move(failure));
}

void TestListener::OnTestProgramEnd(const ::testing::UnitTest& all) {
  report_.Set("tests", {{"passed", all.successful_test_count()},
                        {"failed", all.failed_test_count()},
                        {"skipped", all.skipped_test_count()},
                        {"suites", suites_}});
}

}  // namespace vitrine::gpu_check
