// What tests of chat templates share: stored cases, and how jinja2 would call an error.
#pragma once

#include <ctime>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "model/chat_template.h"
#include "model/jinja/errors.h"
#include "model/json.h"

namespace vitrine {

// The rows of a file below tests/data/.
inline std::vector<JsonValue> ReadChatCases(const std::string& name) {
  std::ifstream file(std::string(VITRINE_TEST_DATA) + "/" + name);
  std::vector<JsonValue> rows;
  for (std::string line; std::getline(file, line);) {
    auto row = ParseJson(line, name, 100'000);
    if (!row.ok()) throw std::runtime_error(row.status().ToString());
    rows.push_back(*std::move(row));
  }
  return rows;
}

// The clock of the stored cases: 2025-03-14 15:09:26, a Friday.
inline std::tm GoldenTime() {
  std::tm time = {};
  time.tm_year = 125;
  time.tm_mon = 2;
  time.tm_mday = 14;
  time.tm_hour = 15;
  time.tm_min = 9;
  time.tm_sec = 26;
  time.tm_wday = 5;
  time.tm_yday = 72;
  return time;
}

// "raised", "runtime" or "syntax", as the stored cases name them.
inline std::string ErrorKind(const absl::Status& status) {
  if (status.ok()) return "none";
  if (jinja::RaisedText(status)) return "raised";
  return absl::IsInvalidArgument(status) || absl::IsUnimplemented(status) ? "syntax" : "runtime";
}

}  // namespace vitrine
