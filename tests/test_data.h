#pragma once

#include <cstdlib>
#include <string>

namespace vitrine::testing {

// The folder of stored test data: tests/data, or what the environment variable VITRINE_TEST_DATA
// names, for programs that run on another machine.
inline std::string TestData() {
  const char* const given = std::getenv("VITRINE_TEST_DATA");
  return given != nullptr ? given : VITRINE_TEST_DATA;
}

}  // namespace vitrine::testing
