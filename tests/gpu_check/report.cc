#include "tests/gpu_check/report.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "kernels/cuda/cuda_check.h"

namespace vitrine::gpu_check {
namespace {

constexpr int kFailed = 1, kCannotRun = 2;  // Exit codes; see main.cc.

std::string NameOf(const ::testing::TestInfo& test) {
  return std::string(test.test_suite_name()) + "." + test.name();
}

// A suite without what the parameters of its instantiation add: "All/CudaModelTest".
std::string SuiteName(const ::testing::TestInfo& test) {
  const std::string name = test.test_suite_name();
  return name.substr(name.rfind('/') == std::string::npos ? 0 : name.rfind('/') + 1);
}

// A message of a test may hold any bytes.
std::string TextOf(const nlohmann::json& value, int indent) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Report::Report(std::string path) : path_(std::move(path)) { SetRunning("start"); }

void Report::Set(const std::string& section, nlohmann::json value) {
  root_[section] = std::move(value);
  Write();
}

void Report::Append(const std::string& section, nlohmann::json value) {
  std::printf("%s %s\n", section.c_str(), TextOf(value, -1).c_str());
  std::fflush(stdout);
  root_[section].push_back(std::move(value));
  Write();
}

void Report::SetRunning(const std::string& what) {
  root_.erase("running");
  if (!what.empty()) root_["running"] = what;
  Write();
}

void Report::EndIfDeviceFailed() {
  const cudaError_t fault = cuda::DeviceFault();
  if (fault == cudaSuccess) return;
  std::fprintf(stderr, "gpu_check: the device failed: %s\n", cudaGetErrorString(fault));
  Set("device_fault", cudaGetErrorString(fault));
  std::_Exit(kFailed);  // What is left to be freed is on that device.
}

// Beside the file first: the program may end while it writes.
void Report::Write() const {
  if (path_.empty()) return;
  const std::string next = path_ + ".next";
  std::ofstream file(next);
  file << TextOf(root_, 2) << "\n";
  file.close();
  if (file && std::rename(next.c_str(), path_.c_str()) == 0) return;
  std::fprintf(stderr, "gpu_check: cannot write %s\n", path_.c_str());
  std::_Exit(kCannotRun);
}

void TestListener::OnTestStart(const ::testing::TestInfo& test) {
  report_.SetRunning(NameOf(test));
}

void TestListener::OnTestEnd(const ::testing::TestInfo& test) {
  nlohmann::json& suite = tests_["suites"][SuiteName(test)];
  if (suite.is_null()) suite = nlohmann::json::object();
  const ::testing::TestResult& result = *test.result();
  const char* const outcome = result.Failed() ? "failed" : result.Skipped() ? "skipped" : "passed";
  suite[outcome] = suite.value(outcome, 0) + 1;
  tests_[outcome] = tests_.value(outcome, 0) + 1;
  report_.Set("tests", tests_);
  if (result.Failed()) {
    nlohmann::json failure = {{"test", NameOf(test)}};
    for (int i = 0; i < result.total_part_count(); ++i) {
      if (!result.GetTestPartResult(i).failed()) continue;
      failure["message"] = result.GetTestPartResult(i).message();
      break;
    }
    report_.Append("failures", std::move(failure));
  }
  report_.EndIfDeviceFailed();
}

}  // namespace vitrine::gpu_check
