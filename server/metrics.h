// Counters of requests since start. Invariant at any quiet moment:
// accepted == finished + cancelled + expired + failed + live.
#pragma once

#include <atomic>
#include <cstdint>

#include "server/request.h"

namespace vitrine::server {

struct RequestCounters {
  std::atomic<uint64_t> accepted = 0;   // Passed every check and entered the queue.
  std::atomic<uint64_t> finished = 0;   // Ended with a reason, shutdown included.
  std::atomic<uint64_t> cancelled = 0;  // The client went away.
  std::atomic<uint64_t> expired = 0;    // The deadline passed.
  std::atomic<uint64_t> failed = 0;     // Our fault, or the device's.
  std::atomic<uint64_t> refused = 0;    // Turned away before the queue.

  // Of several threads that look at different moments, so it may lag; exact when nothing moves.
  uint64_t live() const { return Read().live(); }

  struct Counts {
    uint64_t accepted = 0;
    uint64_t finished = 0;
    uint64_t cancelled = 0;
    uint64_t expired = 0;
    uint64_t failed = 0;
    uint64_t refused = 0;
    uint64_t live() const { return accepted - finished - cancelled - expired - failed; }
  };

  // Ends before the beginnings that they follow, so that live is never negative.
  Counts Read() const {
    Counts counts = {
        .finished = finished, .cancelled = cancelled, .expired = expired, .failed = failed};
    counts.accepted = accepted;
    counts.refused = refused;
    return counts;
  }

  void CountEnd(Ending ending) {
    switch (ending) {
      case Ending::kFinished:
      case Ending::kShutDown:
        ++finished;
        break;
      case Ending::kCancelled:
        ++cancelled;
        break;
      case Ending::kExpired:
        ++expired;
        break;
      case Ending::kFailed:
      case Ending::kDeviceFailed:
        ++failed;
        break;
    }
  }
};

}  // namespace vitrine::server
