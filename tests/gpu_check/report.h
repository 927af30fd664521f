// What gpu_check finds, as one JSON document.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "nlohmann/json.hpp"

namespace vitrine::gpu_check {

class Report {
 public:
  // Sets the value of a section: "device", "limits".
  void Set(const std::string& section, nlohmann::json value);
  // Appends to the list of a section, and prints it: "kernels", "steps".
  void Append(const std::string& section, nlohmann::json value);
  // False, with a message on stderr, where the file cannot be written.
  bool Write(const std::string& path) const;

 private:
  nlohmann::json root_;
};

// Counts the tests of each suite, and keeps the name and first message of each that failed.
class TestListener final : public ::testing::EmptyTestEventListener {
 public:
  explicit TestListener(Report& report) : report_(report) {}
  void OnTestEnd(const ::testing::TestInfo& test) override;
  void OnTestProgramEnd(const ::testing::UnitTest& all) override;

 private:
  Report& report_;
  nlohmann::json suites_ = nlohmann::json::object();
};

}  // namespace vitrine::gpu_check
