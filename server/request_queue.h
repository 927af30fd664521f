// The bounded queue from the RPC threads to the engine. It counts a request as queued until the
// engine says that its first step came or that it ended before.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "server/metrics.h"
#include "server/request.h"

namespace vitrine::server {

struct QueueLimits {
  int max_requests = 0;
  int64_t max_prompt_tokens = 0;
};

class RequestQueue {
 public:
  // `counters`, in which it counts what it accepts and refuses, must outlive the queue.
  RequestQueue(QueueLimits limits, RequestCounters& counters)
      : limits_(limits), counters_(counters) {}

  // RESOURCE_EXHAUSTED when the queue is full or cannot start the request before its deadline; it
  // carries RetryAfter. DEADLINE_EXCEEDED when that has passed. After Close: its reason. `now_us`
  // as in GenerationRequest::arrival_us.
  absl::Status Push(std::shared_ptr<ActiveRequest> request, int64_t now_us);

  // Engine: appends what has arrived to `requests`.
  void Take(std::vector<std::shared_ptr<ActiveRequest>>& requests);
  // Engine: blocks until something has arrived, Wake was called since the last Take, or `limit_us`
  // have passed; kNever: no limit.
  void Wait(int64_t limit_us);
  void Wake();

  // Engine: a request left the queue, at `now_us`, because it `started` or because it ended.
  void Leave(const ActiveRequest& request, bool started, int64_t now_us);

  // Refuses everything from now on with `why`, that of the first call. What is queued stays.
  void Close(absl::Status why);

  struct Load {
    int requests = 0;
    int64_t prompt_tokens = 0;
  };
  Load load() const;

 private:
  absl::Status Admissible(const GenerationRequest& request, int64_t now_us) const;

  const QueueLimits limits_;
  RequestCounters& counters_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_changed_;
  // All below: guarded by mutex_.
  std::vector<std::shared_ptr<ActiveRequest>> arrived_;
  Load load_;
  absl::Status closed_;  // OK: open.
  bool woken_ = false;
  int64_t last_start_us_ = -1;      // Of a request while others waited behind it; -1: none did.
  double start_interval_us_ = 0.0;  // Moving average between two such starts.
};

// How long the sender of a refused request should wait before the next try; set on errors that
// may go away, see RESOURCE_EXHAUSTED in the protocol.
void SetRetryAfter(absl::Status& status, int64_t micros);
std::optional<int64_t> RetryAfterMicros(const absl::Status& status);

}  // namespace vitrine::server
