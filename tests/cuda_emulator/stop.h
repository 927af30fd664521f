// How a kernel that breaks a rule is stopped, and how the host learns why.
#pragma once

#include <functional>
#include <string>

namespace vitrine::emu {

// Where a kernel called a collective. Arrives through default arguments, so no macros.
struct Site {
  const char* file;
  int line;
};
constexpr Site Here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return {file, line};
}

std::string ToString(Site site);
// Stops the kernel: unwinds the calling CUDA thread; the launch then throws in host code.
[[noreturn]] void Fail(const std::string& message, Site site = {"", 0});
// What stopped the kernels that `run` launches; empty when nothing did.
std::string StopReason(const std::function<void()>& run);

}  // namespace vitrine::emu
