#include "client/bench_run.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/bench_report.h"
#include "client/bench_workload.h"
#include "client/cancellation.h"
#include "client/generate_client.h"
#include "client/stream_check.h"
#include "vitrine/v1/generation.pb.h"

namespace vitrine::client {
namespace {

using std::chrono::nanoseconds;
using Clock = std::chrono::steady_clock;

// A request under way.
struct Flight {
  RequestRecord record;
  StreamCheck check;
  absl::Status broken = absl::OkStatus();  // First broken promise of the stream.
};

// The requests under way and those that have ended. Thread-safe; gRPC's threads hold it by
// shared_ptr until their last callback has returned.
class Flights : public std::enable_shared_from_this<Flights> {
 public:
  explicit Flights(std::span<const std::unique_ptr<GenerateClient>> clients)
      : clients_(clients), start_(Clock::now()) {}

  nanoseconds Now() const { return Clock::now() - start_; }

  void Launch(const v1::GenerateRequest& request, nanoseconds arrival, std::string label) {
    auto flight = std::make_shared<Flight>();
    flight->record.arrival = arrival;
    flight->record.label = std::move(label);
    GenerateClient* client = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) return;
      client = clients_[launched_++ % clients_.size()].get();
      if (flight->record.label.empty()) ++load_in_flight_;
      streams_[flight.get()] = nullptr;
    }
    auto self = shared_from_this();
    std::shared_ptr<GenerateStream> stream = client->StartGenerate(
        request,
        [self, flight](const v1::GenerateEvent& event) { self->OnEvent(event, flight.get()); },
        [self, flight](absl::Status status) { self->OnDone(std::move(status), flight.get()); });
    const std::lock_guard lock(mutex_);
    // It may have ended already.
    const auto found = streams_.find(flight.get());
    if (found == streams_.end()) return;
    if (stopped_) stream->Cancel();
    found->second = std::move(stream);
  }

  // Cancels what is under way; nothing is launched any more.
  void Stop() {
    std::vector<std::shared_ptr<GenerateStream>> streams;
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
      for (const auto& [flight, stream] : streams_) {
        if (stream != nullptr) streams.push_back(stream);
      }
      changed_.notify_all();
    }
    for (const std::shared_ptr<GenerateStream>& stream : streams) stream->Cancel();
  }

  // Waits until fewer than `limit` requests of the load are under way, `until` has passed, or Stop.
  // When a place is free, the time at which it became free.
  std::optional<nanoseconds> WaitForPlace(size_t limit, nanoseconds until) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, start_ + until, [&] { return stopped_ || load_in_flight_ < limit; });
    if (stopped_ || load_in_flight_ >= limit) return std::nullopt;
    if (free_since_.empty()) return Now();
    const nanoseconds free_since = free_since_.front();
    free_since_.pop_front();
    return free_since;
  }

  // True once nothing is under way.
  bool WaitForEnd(nanoseconds until) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, start_ + until, [&] { return streams_.empty(); });
  }

  bool stopped() const {
    const std::lock_guard lock(mutex_);
    return stopped_;
  }

  // After WaitForEnd.
  std::vector<RequestRecord> TakeRecords() {
    const std::lock_guard lock(mutex_);
    return std::move(ended_);
  }

  void PrintProgress() const {
    const std::lock_guard lock(mutex_);
    const bool terminal = isatty(STDERR_FILENO) != 0;
    const double seconds = std::chrono::duration<double>(Now()).count();
    std::fprintf(stderr, "%s%.0f s: %zu ended, %zu under way, %.1f tokens/s%s",
                 terminal ? "\r\x1b[K" : "", seconds, ended_.size(), streams_.size(),
                 static_cast<double>(tokens_) / seconds, terminal ? "" : "\n");
  }

 private:
  void OnEvent(const v1::GenerateEvent& event, Flight* flight) {
    const nanoseconds now = Now();
    if (flight->broken.ok()) flight->broken = flight->check.Add(event);
    if (event.has_done()) flight->record.done = event.done();
    if (!event.has_tokens()) return;
    const auto tokens = static_cast<uint32_t>(event.tokens().tokens_size());
    flight->record.messages.push_back({.at = now, .tokens = tokens});
    const std::lock_guard lock(mutex_);
    tokens_ += tokens;
  }

  void OnDone(absl::Status status, Flight* flight) {
    flight->record.end = Now();
    if (status.ok()) status = flight->broken.ok() ? flight->check.End() : flight->broken;
    flight->record.status = std::move(status);
    const std::lock_guard lock(mutex_);
    if (flight->record.label.empty()) {
      --load_in_flight_;
      free_since_.push_back(flight->record.end);
    }
    ended_.push_back(std::move(flight->record));
    streams_.erase(flight);
    changed_.notify_all();
  }

  const std::span<const std::unique_ptr<GenerateClient>> clients_;
  const Clock::time_point start_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  size_t launched_ = 0;
  size_t load_in_flight_ = 0;
  uint64_t tokens_ = 0;
  std::deque<nanoseconds> free_since_;
  std::map<const Flight*, std::shared_ptr<GenerateStream>> streams_;
  std::vector<RequestRecord> ended_;
};

// Decides what is sent when. One thread.
class Sender {
 public:
  Sender(Flights* flights, const Workload& workload, const BenchOptions& options)
      : flights_(flights), workload_(workload), options_(options) {
    if (IsOpen()) next_arrival_ = workload_.Gap(0, options_.rate);
  }

  // Until everything is sent or the test was stopped.
  void Send() {
    while (!flights_->stopped() && (LoadRemains() || !InjectionsSent())) {
      SendDueInjections();
      nanoseconds until = NextWake();
      if (!LoadRemains()) {
        flights_->WaitForPlace(0, until);
      } else if (IsOpen()) {
        SendOpen(until);
      } else if (const auto free = flights_->WaitForPlace(options_.concurrency, until)) {
        Launch(*free);
      }
      ShowProgress();
    }
  }

  void Wait() {
    while (!flights_->WaitForEnd(next_progress_)) ShowProgress();
    if (progress_shown_ && isatty(STDERR_FILENO) != 0) std::fputs("\n", stderr);
  }

 private:
  bool IsOpen() const { return options_.rate > 0.0; }

  bool InjectionsSent() const { return injected_ == options_.injections.size(); }

  bool LoadRemains() const {
    if (options_.requests && sent_ >= *options_.requests) return false;
    const nanoseconds next = IsOpen() ? next_arrival_ : flights_->Now();
    return !options_.duration || next < *options_.duration;
  }

  // Injections and progress interrupt a wait; so does the end of the test.
  nanoseconds NextWake() const {
    nanoseconds wake = next_progress_;
    if (!InjectionsSent()) wake = std::min(wake, options_.injections[injected_].at);
    if (options_.duration && flights_->Now() < *options_.duration) {
      wake = std::min(wake, *options_.duration);
    }
    return wake;
  }

  void SendDueInjections() {
    const nanoseconds now = flights_->Now();
    while (!InjectionsSent() && options_.injections[injected_].at <= now) {
      const Injection& injection = options_.injections[injected_];
      // Indices from the far end never meet those of the load.
      flights_->Launch(
          workload_.Request(~uint64_t{injected_}, injection.prompt_tokens, injection.output_tokens),
          injection.at, injection.label);
      ++injected_;
    }
  }

  void SendOpen(nanoseconds until) {
    flights_->WaitForPlace(0, std::min(until, next_arrival_));
    if (flights_->Now() < next_arrival_) return;
    Launch(next_arrival_);
    next_arrival_ += workload_.Gap(sent_, options_.rate);
  }

  void Launch(nanoseconds arrival) {
    flights_->Launch(workload_.Request(sent_), arrival, "");
    ++sent_;
  }

  void ShowProgress() {
    if (flights_->Now() < next_progress_) return;
    const bool terminal = isatty(STDERR_FILENO) != 0;
    next_progress_ = flights_->Now() + std::chrono::seconds(terminal ? 1 : 10);
    if (!options_.show_progress) return;
    flights_->PrintProgress();
    progress_shown_ = true;
  }

  Flights* const flights_;
  const Workload& workload_;
  const BenchOptions& options_;
  uint64_t sent_ = 0;
  size_t injected_ = 0;
  nanoseconds next_arrival_{0};
  nanoseconds next_progress_ = std::chrono::seconds(1);
  bool progress_shown_ = false;
};

}  // namespace

std::vector<RequestRecord> RunBenchmark(std::span<const std::unique_ptr<GenerateClient>> clients,
                                        const Workload& workload, const BenchOptions& options,
                                        Cancellation* cancellation) {
  const auto flights = std::make_shared<Flights>(clients);
  cancellation->Arm([flights] { flights->Stop(); });
  Sender sender(flights.get(), workload, options);
  sender.Send();
  sender.Wait();
  cancellation->Disarm();
  return flights->TakeRecords();
}

}  // namespace vitrine::client
