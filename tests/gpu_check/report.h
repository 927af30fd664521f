// What gpu_check finds, as one JSON document.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "nlohmann/json.hpp"

namespace vitrine::gpu_check {

// The file is whole at any time. Whatever ends the program, a failed check of a kernel's host code
// or a device that is gone, it holds what was found before, and in "running" what it was found at.
class Report {
 public:
  // `path`: of the file; empty: none. Ends the process where it cannot be written.
  explicit Report(std::string path);

  // Sets the value of a section: "device", "limits".
  void Set(const std::string& section, nlohmann::json value);
  // Appends to the list of a section, and prints it: "kernels", "steps".
  void Append(const std::string& section, nlohmann::json value);
  // What is begun now; empty: nothing, all is done.
  void SetRunning(const std::string& what);
  // Ends the process with 1 where the device has failed: nothing that it gives from then on, times
  // included, means anything. Section "device_fault" has the reason.
  void EndIfDeviceFailed();

 private:
  void Write() const;

  const std::string path_;
  nlohmann::json root_ = nlohmann::json::object();
};

// Counts the tests of each suite, and keeps the name and first message of each that failed.
class TestListener final : public ::testing::EmptyTestEventListener {
 public:
  explicit TestListener(Report& report) : report_(report) {}
  void OnTestStart(const ::testing::TestInfo& test) override;
  void OnTestEnd(const ::testing::TestInfo& test) override;

 private:
  Report& report_;
  nlohmann::json tests_ = {{"passed", 0}, {"failed", 0}, {"skipped", 0}};
};

}  // namespace vitrine::gpu_check
