// Runs a function as a kernel, for unit tests of the emulator.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "cuda_emulator/device.h"
#include "cuda_emulator/launch.h"
#include "cuda_emulator/shared_memory.h"

namespace vitrine::emu {

inline void RunKernel(dim3 grid, dim3 block, const std::function<void()>& body,
                      size_t shared_bytes = 0) {
  ASSERT_EQ(Submit({nullptr, grid, block, shared_bytes, nullptr, false}, body), cudaSuccess);
}

// The message a kernel is stopped with; empty when it ran to its end.
inline std::string StopMessage(dim3 block, const std::function<void()>& body,
                               size_t shared_bytes = 0) {
  return StopReason([&] { RunKernel(1, block, body, shared_bytes); });
}

#define EXPECT_STOPS(block, text, ...)                                                     \
  EXPECT_NE(::vitrine::emu::StopMessage(block, __VA_ARGS__).find(text), std::string::npos) \
      << "stopped with: " << ::vitrine::emu::StopMessage(block, __VA_ARGS__)

// Restores the options a test changes.
struct ScopedOptions {
  Options saved = options();
  ~ScopedOptions() { options() = saved; }
};

}  // namespace vitrine::emu
