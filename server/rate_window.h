// Events since start, and per second over the last ten seconds.
#pragma once

#include <array>
#include <cstdint>

namespace vitrine::server {

class RateWindow {
 public:
  void Add(int64_t now_us, int64_t count) {
    const int64_t second = now_us / 1'000'000;
    Slot& slot = slots_[static_cast<size_t>(second % kSlots)];
    if (slot.second != second) slot = {.second = second};
    slot.count += count;
    total_ += count;
  }

  int64_t total() const { return total_; }

  double PerSecond(int64_t now_us) const {
    const int64_t second = now_us / 1'000'000;
    int64_t total = 0;
    for (const Slot& slot : slots_) {
      if (slot.second < second && slot.second >= second - kSeconds) total += slot.count;
    }
    return static_cast<double>(total) / kSeconds;
  }

 private:
  static constexpr int64_t kSeconds = 10;
  static constexpr int64_t kSlots = kSeconds + 1;  // The running second does not count yet.

  struct Slot {
    int64_t second = -1;
    int64_t count = 0;
  };
  std::array<Slot, kSlots> slots_ = {};
  int64_t total_ = 0;
};

}  // namespace vitrine::server
