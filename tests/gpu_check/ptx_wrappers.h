// What the wrapped PTX instructions and the warp functions built on shuffles give for fixed inputs.
// The same source runs on a device and under the emulator: the results must be the same bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vitrine::gpu_check {

struct WrapperResult {
  std::string name;
  std::vector<uint32_t> words;

  friend bool operator==(const WrapperResult&, const WrapperResult&) = default;
};

std::vector<WrapperResult> RunWrappers();

// A result per line: its name, then its words in hexadecimal.
std::string ToText(const std::vector<WrapperResult>& results);

}  // namespace vitrine::gpu_check
