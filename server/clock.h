// Monotonic time, injected so that a simulation can own it.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>

namespace vitrine::server {

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t NowMicros() const = 0;
};

class SteadyClock final : public Clock {
 public:
  int64_t NowMicros() const override {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

}  // namespace vitrine::server
