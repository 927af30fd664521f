// The loop that computes: drain the queue, drop who is gone, form a step, run it, post its tokens.
// Ids in, ids out; it knows neither text nor RPCs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "model/kv_cache.h"
#include "model/runner.h"
#include "server/clock.h"
#include "server/delivery.h"
#include "server/rate_window.h"
#include "server/request_queue.h"
#include "server/scheduler.h"

namespace vitrine::server {

struct EngineOptions {
  SchedulerOptions scheduler;
  bool prefix_cache = true;
  int64_t trace_buffer_bytes = int64_t{4} << 20;  // Of a request on their way to its reader.
  SipHashKey hash_key = {};                       // Random per process.
};

struct EngineLoad {
  int waiting_sequences = 0;
  int running_sequences = 0;
  int blocks_free = 0;
  int blocks_owned = 0;
  int blocks_cached = 0;
  int blocks_total = 0;
  uint64_t steps = 0;
  int64_t preemptions = 0;
  int64_t oldest_arrival_us = kNever;  // Of the waiting ones; monotonic.
  RateWindow generated;                // Tokens of answers.
  RateWindow prefilled;                // Prompt tokens computed.
};

class Engine {
 public:
  // All references must outlive the engine.
  Engine(const EngineOptions& options, Runner& runner, RequestQueue& queue, Delivery& delivery,
         const Clock& clock);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Starts the engine thread, which alone calls Turn from then on.
  void Start();

  // Ends whatever is queued or running with SHUTDOWN and waits for the thread. Close the queue
  // before. Idempotent.
  void Stop();

  // One turn of the loop. False: there was nothing to do.
  bool Turn();

  // Any thread. Exact between turns; in a turn, of its beginning.
  EngineLoad load() const;

  // Any thread. How long the engine has been inside one turn with work to do; 0 when it is idle.
  int64_t BusyMicros() const;

  // Any thread. UNAVAILABLE once the device has failed: every request that is live ends with
  // kDeviceFailed and the queue is closed.
  absl::Status status() const { return has_failed_ ? runner_.status() : absl::OkStatus(); }

  const BlockPool& pool() const { return pool_; }  // Between turns only.

 private:
  void Run();
  void TakeArrivals();
  void DropLeavers(int64_t now_us);
  std::optional<ChoiceEnding> WhyLeave(const Sequence& sequence, int64_t now_us) const;
  void NoteStarts(int64_t now_us);
  void PostTrace(const Sequence& sequence, std::span<AttentionPiece> pieces, int64_t added_us,
                 float lse_delta);
  void ReadCertificates(const Batch& batch);
  void ReadTraces(const Batch& batch);
  void NoteFailure();
  void NoteResult(const StepResult& result, int64_t now_us);
  void PostEnd(const Sequence& sequence, int64_t now_us);
  void PublishLoad();

  const EngineOptions options_;
  Runner& runner_;
  RequestQueue& queue_;
  Delivery& delivery_;
  const Clock& clock_;
  BlockPool pool_;
  Scheduler scheduler_;
  uint64_t next_arrival_ = 0;
  std::vector<std::shared_ptr<ActiveRequest>> arrivals_;
  std::vector<TokenId> next_tokens_;
  std::vector<AttentionPiece> pieces_;
  std::vector<float> log_sum_exp_;  // Of the certified rows of a step.
  std::vector<float> lse_deltas_;   // Per sequence of a step; below 0: it is not compared.
  std::vector<StepEvent> events_;
  uint64_t steps_ = 0;
  RateWindow generated_;
  RateWindow prefilled_;

  std::atomic<bool> stopping_ = false;
  std::atomic<bool> has_failed_ = false;
  std::atomic<int64_t> turn_began_us_ = kNever;  // kNever: idle.
  mutable std::mutex load_mutex_;
  EngineLoad load_;  // Guarded by load_mutex_.
  std::thread thread_;
};

}  // namespace vitrine::server
