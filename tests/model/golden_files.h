// Reads the data files of the tests, and finds the real model.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "nlohmann/json.hpp"

namespace vitrine {

// One JSON value per line of a file under tests/data.
inline std::vector<nlohmann::json> ReadJsonLines(const std::string& name) {
  std::ifstream file(std::string(VITRINE_TEST_DATA) + "/" + name);
  if (!file) throw std::runtime_error("cannot read tests/data/" + name);
  std::vector<nlohmann::json> values;
  for (std::string line; std::getline(file, line);) values.push_back(nlohmann::json::parse(line));
  return values;
}

inline std::string FromBase64(const std::string& text) {
  std::string bytes;
  if (!absl::Base64Unescape(text, &bytes)) throw std::runtime_error("not base64: " + text);
  return bytes;
}

inline std::string FromHex(const std::string& text) { return absl::HexStringToBytes(text); }

// Path of SmolLM2-135M-Instruct.Q4_1.gguf.
inline std::string RealModelPath() {
  const char* path = std::getenv("VITRINE_TEST_MODEL");
  if (path == nullptr) {
    throw std::runtime_error("VITRINE_TEST_MODEL must name SmolLM2-135M-Instruct.Q4_1.gguf");
  }
  return path;
}

}  // namespace vitrine
